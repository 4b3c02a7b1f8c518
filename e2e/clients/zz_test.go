//go:build e2e

package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/e2e/clients"
	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

func TestZZ(t *testing.T) {
	list := all(t)
	type inj struct {
		name   string
		era    clients.Era
		match  func(r *http.Request, method, tool string) bool
		status int
		code   int
	}
	add := func(r *http.Request, m, tool string) bool { return tool == "add" }
	get := func(r *http.Request, m, tool string) bool { return r.Method == "GET" }
	probe := func(r *http.Request, m, tool string) bool { return m == "server/discover" }
	opener := func(r *http.Request, m, tool string) bool { return m == "initialize" }
	var cases []inj
	for _, st := range []struct{ s, c int }{{200, -31403}, {400, -31403}, {401, -31401}, {403, -31403}, {404, -31404}, {429, -31429}, {502, -31502}, {503, -31503}} {
		cases = append(cases, inj{fmt.Sprintf("add %d", st.s), clients.Legacy, add, st.s, st.c})
	}
	for _, st := range []struct{ s, c int }{{401, -31401}, {404, -31404}, {405, -31404}, {429, -31429}, {503, -31503}} {
		cases = append(cases, inj{fmt.Sprintf("get %d", st.s), clients.Legacy, get, st.s, st.c})
	}
	for _, st := range []struct{ s, c int }{{400, -32022}, {400, -31400}, {401, -31401}, {403, -31403}, {404, -31404}, {503, -31503}} {
		cases = append(cases, inj{fmt.Sprintf("probe %d %d", st.s, st.c), clients.Auto, probe, st.s, st.c})
	}
	for _, st := range []struct{ s, c int }{{200, -31403}, {401, -31401}, {403, -31403}} {
		cases = append(cases, inj{fmt.Sprintf("opener %d", st.s), clients.Legacy, opener, st.s, st.c})
	}
	for _, c := range cases {
		for _, client := range list {
			s := newStandIn(t, true)
			hits := 0
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				r.Header.Set("Authorization", header)
				var m struct {
					ID     json.RawMessage
					Method string
					Params struct{ Name string }
				}
				_ = json.Unmarshal(body, &m)
				if c.match(r, m.Method, m.Params.Name) {
					hits++
					w.Header().Set("Content-Type", "application/json")
					if c.status == 401 {
						w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://localhost/x", error="invalid_token"`)
					}
					w.WriteHeader(c.status)
					data := `{"reason":"because"}`
					if c.code == -32022 {
						data = `{"supported":["2025-11-25"],"requested":"2026-07-28"}`
					}
					id := string(m.ID)
					if id == "" {
						id = "null"
					}
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"the reason","data":%s}}`, id, c.code, data)
					return
				}
				s.ServeHTTP(w, r)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			steps, _ := client.Run(ctx, clients.Env{URL: testfleet.NewHTTP(t, h, nil) + "/mcp", Era: c.era})
			cancel()
			var out []string
			for _, st := range steps {
				if !st.OK {
					d := st.Detail
					if len(d) > 170 {
						d = d[:170]
					}
					out = append(out, st.Name+"="+d)
				} else if st.Name == "connect" {
					out = append(out, st.Detail)
				}
			}
			fmt.Printf("ZZ %-16s %-24s hits=%d last=%s :: %s\n", c.name, client.Name, hits, steps[len(steps)-1].Name, strings.Join(out, " | "))
		}
	}
}
