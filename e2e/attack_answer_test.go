//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// Whoever makes an answer, the caller can ask an operator about it: its request
// id is the one of the decision record.
func TestGatewayMarksEveryKindOfAnswer(t *testing.T) {
	t.Parallel()
	const origin = "https://app.example"
	f := newFront(t, "--origin", origin)
	session := f.session(t, f.server, f.token)
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	at := func(behaviour, flag string) (path, token string) {
		url := hostile.URL(t, behaviour)
		server := f.addServer(t, url, url, "--origin", flag)
		_, token = f.addToken(t, server)
		return "/servers/" + server, token
	}
	html, htmlToken := at("html-200", origin)
	status401, token401 := at("401", origin)
	gone := f.addServer(t, "", "http://127.0.0.1:1/rpc", "--origin", origin)
	_, goneToken := f.addToken(t, gone)
	sealed := map[string]string{"Mcp-Session-Id": session}
	for _, tt := range []struct {
		name     string
		call     call
		want     int
		decision string
	}{
		{"a result", call{path: f.rpc(), token: f.token, body: ping}, 200, "allow"},
		{"a result in a session", call{path: f.mcp(), token: f.token, body: ping, header: sealed}, 200, "allow"},
		{"an opened session", call{path: f.mcp(), token: f.token, body: initialize}, 200, "allow"},
		{"a notification on /rpc", call{path: f.rpc(), token: f.token, body: `{"jsonrpc":"2.0","method":"x"}`}, 202, "allow"},
		{"a notification on /mcp", call{path: f.mcp(), token: f.token, body: `{"jsonrpc":"2.0","method":"x"}`, header: sealed}, 202, "allow"},
		{"an answer that Guard replaces", call{path: html + "/rpc", token: htmlToken, body: ping}, 502, "allow"},
		{"an opener that Guard replaces", call{path: html + "/mcp", token: htmlToken, body: initialize}, 502, "allow"},
		{"a 401 of the upstream", call{path: status401 + "/rpc", token: token401, body: ping}, 502, "allow"},
		{"an upstream that is gone", call{path: "/servers/" + gone + "/rpc", token: goneToken, body: ping}, 502, "allow"},
		{"no credential", call{path: f.rpc(), body: ping}, 401, "deny"},
		{"a bad body", call{path: f.rpc(), token: f.token, body: "{"}, 400, "deny"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := map[string]string{"Origin": origin}
			for name, value := range tt.call.header {
				header[name] = value
			}
			tt.call.header = header
			got := f.do(t, tt.call)
			if got.status != tt.want {
				t.Fatalf("status %d, body %s, want %d", got.status, got.body, tt.want)
			}
			cors(t, got, origin)
			marked(t, got, tt.decision)
			f.recorded(t, got.header.Get("Arbiter-Request-Id"), tt.decision)
			if got.code() != 0 && !strings.Contains(got.body, got.header.Get("Arbiter-Request-Id")) {
				t.Errorf("body %s, want the request id %s of the header", got.body, got.header.Get("Arbiter-Request-Id"))
			}
		})
	}
}

// recorded checks that an operator finds the decision by its request id.
func (g *gateway) recorded(t *testing.T, id, outcome string) {
	t.Helper()
	var out string
	until(t, "the decision "+id+" is found", func() (found bool) {
		text, err := g.cli(t, "", "explain", "--record", id, "--json")
		out = text
		return err == nil
	})
	var record struct{ Outcome string }
	if err := json.Unmarshal([]byte(out), &record); err != nil || record.Outcome != outcome {
		t.Errorf("the record of %s: %v, %s, want the outcome %s", id, err, out, outcome)
	}
}
