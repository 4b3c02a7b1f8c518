//go:build e2e

package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// unknownSession checks the 404 by which an SDK client connects anew: it is the
// same for every session that cannot be used, and carries no id.
func unknownSession(t *testing.T, got reply) {
	t.Helper()
	refused(t, got, 404, -31404)
	if strings.Contains(got.body, `"id":`) || !strings.HasPrefix(got.body, "{") {
		t.Errorf("body %s, want one error without an id", got.body)
	}
	if len(got.header.Values("Mcp-Session-Id"))+len(got.header.Values("Www-Authenticate")) > 0 {
		t.Errorf("header %v, want neither a session nor a challenge", got.header)
	}
}

func TestGatewayRefusesMCPWithoutASession(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.untouched(t, func() {
		for _, body := range []string{
			rpc("5", "tools/list", ""), rpc("5", "tools/call", `{"name":"echo"}`), rpc("5", "ping", ""),
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":5,"result":{}}`,
		} {
			got := f.do(t, call{path: f.mcp(), token: f.token, body: body})
			refused(t, got, 400, -32600)
			if strings.Contains(body, "method\":\"tools") && !strings.Contains(got.body, `"id":5,`) {
				t.Errorf("body %s, want the id 5", got.body)
			}
		}
		refused(t, f.do(t, call{method: "GET", path: f.mcp(), token: f.token}), 400, -32600)
		refused(t, f.do(t, call{method: "DELETE", path: f.mcp(), token: f.token}), 400, -32600)
	})
}

func TestGatewayRefusesForgedSessions(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	raw, err := base64.RawURLEncoding.DecodeString(session)
	if err != nil {
		t.Fatal(err)
	}
	forged := map[string]string{
		"invented": "made-up", "the upstream's": testfleet.EchoSession, "a uuid": "7b0e2f0a-9f0e-4c1b-8d3a-2f6f3f0f9a11", "truncated": session[:len(session)-1], "half": session[:len(session)/2],
		"lengthened": session + "A", "padded": session + "==", "twice": session + session, "joined": session + "," + session, "first byte": session[:1], "other case": strings.ToUpper(session),
		"zeros": base64.RawURLEncoding.EncodeToString(make([]byte, len(raw))), "long": strings.Repeat("A", 20_000), "latin-1": session + "\xe9",
	}
	for i := range raw {
		raw[i] ^= 1 << (i % 8)
		forged[fmt.Sprintf("bit of byte %d", i)] = base64.RawURLEncoding.EncodeToString(raw)
		raw[i] ^= 1 << (i % 8)
	}
	f.untouched(t, func() {
		for name, id := range forged {
			sealed := map[string]string{"Mcp-Session-Id": id}
			unknownSession(t, f.do(t, call{path: f.mcp(), token: f.token, body: ping, header: sealed}))
			if strings.HasPrefix(name, "bit") {
				continue
			}
			unknownSession(t, f.do(t, call{method: "GET", path: f.mcp(), token: f.token, header: sealed}))
			unknownSession(t, f.do(t, call{method: "DELETE", path: f.mcp(), token: f.token, header: sealed}))
			unknownSession(t, f.do(t, call{path: f.mcp(), token: f.token, body: `{"jsonrpc":"2.0","id":1,"result":{}}`, header: sealed, http2: true}))
			if t.Failed() {
				t.Fatalf("with the session that is %s", name)
			}
		}
		unknownSession(t, f.first(t, f.post(f.mcp(), ping, "Mcp-Session-Id:")))
	})
	if got := f.onMCP(t, session, ping); got.status != 200 {
		t.Errorf("the genuine one: status %d, body %s", got.status, got.body)
	}
}

// Each access token is a principal of its own, of one server.
func TestGatewayRefusesForeignSessions(t *testing.T) {
	t.Parallel()
	f, other := newFront(t), newFront(t)
	session, othersession := f.session(t, f.server, f.token), other.session(t, other.server, other.token)
	id, second := f.addToken(t, f.server, "--name", "second")
	secondSession := f.session(t, f.server, second)
	f.untouched(t, func() {
		for _, tt := range []struct{ token, session string }{{second, session}, {f.token, secondSession}, {f.token, othersession}, {second, othersession}} {
			for _, c := range []call{{body: ping}, {method: "GET"}, {method: "DELETE"}, {body: `{"jsonrpc":"2.0","method":"notifications/cancelled"}`}} {
				c.path, c.token, c.header = f.mcp(), tt.token, map[string]string{"Mcp-Session-Id": tt.session}
				unknownSession(t, f.do(t, c))
			}
		}
	})
	if _, err := f.cli(t, "", "token", "delete", f.server, id); err != nil {
		t.Fatal(err)
	}
	_, again := f.addToken(t, f.server, "--name", "second")
	f.untouched(t, func() {
		sealed := map[string]string{"Mcp-Session-Id": secondSession}
		refused(t, f.do(t, call{path: f.mcp(), token: second, body: ping, header: sealed}), 401, -31401) // a session is no credential
		refused(t, f.do(t, call{path: f.mcp(), body: ping, header: sealed}), 401, -31401)
		unknownSession(t, f.do(t, call{path: f.mcp(), token: again, body: ping, header: sealed}))
	})
	if got := f.onMCP(t, session, ping); got.status != 200 {
		t.Errorf("the first token's session: status %d, body %s", got.status, got.body)
	}
}

// The opener is one request, alone, without a session.
func TestGatewayRefusesOddOpeners(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--batches")
	session := f.session(t, f.server, f.token)
	for _, tt := range []struct {
		name, body, session string
		code                int
	}{
		{"with a session", initialize, session, -32600},
		{"with a forged session", initialize, "x", -32600},
		{"as notification", strings.Replace(initialize, `"id":1,`, "", 1), "", -32600},
		{"as notification in a session", strings.Replace(initialize, `"id":1,`, "", 1), session, -32600},
		{"in a batch", "[" + initialize + "]", "", -32600},
		{"in a batch in a session", "[" + ping + "," + initialize + "]", session, -32600},
		{"no version", rpc("1", "initialize", `{"capabilities":{}}`), "", -32602},
		{"no params", rpc("1", "initialize", ""), "", -32602},
		{"version as number", rpc("1", "initialize", `{"protocolVersion":20251125}`), "", -32602},
		{"version in another case", rpc("1", "initialize", `{"ProtocolVersion":"2025-11-25"}`), "", -32602},
		{"null id", strings.Replace(initialize, `"id":1`, `"id":null`, 1), "", -32600},
		{"a version that no one has", strings.Replace(initialize, "2025-11-25", strings.Repeat("9", 33), 1), "", -32022},
		{"a version as long as a body", strings.Replace(initialize, "2025-11-25", strings.Repeat("9", 1<<20), 1), "", -32022},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.untouched(t, func() {
				c := call{path: f.mcp(), token: f.token, body: tt.body}
				if tt.session != "" {
					c.header = map[string]string{"Mcp-Session-Id": tt.session}
				}
				got := f.do(t, c)
				refused(t, got, 400, tt.code)
				if len(got.header.Values("Mcp-Session-Id")) > 0 {
					t.Errorf("a session was given: %q", got.header.Values("Mcp-Session-Id"))
				}
			})
		})
	}
	for _, version := range []string{"2024-11-05", "2025-03-26", "2030-01-01", "1.0", ""} { // the server negotiates
		got := f.do(t, call{path: f.mcp(), token: f.token, body: strings.Replace(initialize, "2025-11-25", version, 1)})
		if got.status != 200 || len(got.header.Values("Mcp-Session-Id")) != 1 {
			t.Errorf("asking for %q: status %d, body %s", version, got.status, got.body)
		}
	}
}

// The two ids never meet: the client sees the seal alone, once, and the
// upstream its own.
func TestGatewayKeepsTheTwoSessionIDsApart(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.echo.Reset()
	opened := f.do(t, call{path: f.mcp(), token: f.token, body: initialize})
	ids := opened.header.Values("Mcp-Session-Id")
	if len(ids) != 1 || len(ids[0]) > 512 || strings.Contains(ids[0]+opened.body, testfleet.EchoSession) {
		t.Fatalf("session %q, body %s", ids, opened.body)
	}
	if seen := f.last(t).Values("Mcp-Session-Id"); len(seen) > 0 {
		t.Errorf("the upstream saw a session on initialize: %q", seen)
	}
	for _, c := range []call{{body: ping}, {body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, {body: `{"jsonrpc":"2.0","id":1,"result":{}}`}, {method: "DELETE"}} {
		c.path, c.token, c.header = f.mcp(), f.token, map[string]string{"Mcp-Session-Id": ids[0], "Last-Event-ID": "7"}
		f.echo.Reset()
		got := f.do(t, c)
		if got.status > 299 || len(got.header.Values("Mcp-Session-Id")) > 0 {
			t.Errorf("%s %s: status %d, header %v, body %s", c.method, c.body, got.status, got.header, got.body)
		}
		r := f.last(t)
		if seen := r.Values("Mcp-Session-Id"); len(seen) != 1 || seen[0] != testfleet.EchoSession {
			t.Errorf("%s %s: the upstream saw the session %q, want its own", c.method, c.body, seen)
		}
		for _, field := range r.Fields {
			if strings.Contains(field.Value, ids[0]) {
				t.Errorf("the upstream saw the sealed id in %s", field.Name)
			}
		}
	}
}

// Some upstreams repeat their id on every answer, some have none.
func TestGatewayGivesNoIDButItsOwn(t *testing.T) {
	t.Parallel()
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	for _, tt := range []struct {
		behaviour string
		deleted   int
	}{{"session-everywhere", 200}, {"session-none", 405}} {
		url := hostile.URL(t, tt.behaviour)
		server := shared.addServer(t, url, url)
		_, token := shared.addToken(t, server)
		session := shared.session(t, server, token)
		if strings.Contains(session, "upstream-session") {
			t.Errorf("%s: the client was given %q", tt.behaviour, session)
		}
		path := "/servers/" + server
		sealed := map[string]string{"Mcp-Session-Id": session}
		for _, c := range []call{{path: path + "/mcp", body: ping, header: sealed}, {path: path + "/rpc", body: ping}, {path: path + "/rpc", body: initialize}} {
			c.token = token
			got := shared.do(t, c)
			if got.status != 200 || len(got.header.Values("Mcp-Session-Id")) > 0 {
				t.Errorf("%s: status %d, session %q", tt.behaviour, got.status, got.header.Values("Mcp-Session-Id"))
			}
		}
		got := shared.do(t, call{method: "DELETE", path: path + "/mcp", token: token, header: sealed})
		if got.status != tt.deleted {
			t.Errorf("%s: DELETE: status %d, want %d", tt.behaviour, got.status, tt.deleted)
		}
	}
}
