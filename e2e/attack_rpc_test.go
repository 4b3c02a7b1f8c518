//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// /rpc knows no sessions, whatever a client or an upstream says.
func TestGatewayKeepsSessionsOffRPC(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	r := f.seen(t, call{path: f.rpc(), token: f.token, body: rpc("1", "tools/call", `{"name":"echo"}`), header: map[string]string{
		"Mcp-Session-Id": session, "Mcp-Protocol-Version": "1999-01-01", "Mcp-Method": "tools/list", "Mcp-Name": "admin", "Mcp-Param-Region": "eu",
		"Last-Event-Id": "7", "Mcp-New": "x", "X-Own": "passes",
	}})
	for _, field := range r.Fields {
		if name := strings.ToLower(field.Name); strings.HasPrefix(name, "mcp-") || name == "last-event-id" {
			t.Errorf("the upstream saw %s: %s", field.Name, field.Value)
		}
	}
	if r.Value("X-Own") != "passes" {
		t.Errorf("the upstream saw %q", r.Fields)
	}
	got := f.onRPC(t, initialize)
	if got.status != 200 || len(got.header.Values("Mcp-Session-Id")) > 0 || strings.Contains(got.body, testfleet.EchoSession) {
		t.Errorf("initialize: status %d, header %v, body %s, want no session", got.status, got.header, got.body)
	}
	batch := f.onRPC(t, "["+initialize+"]")
	if batch.status != 200 || len(batch.header.Values("Mcp-Session-Id")) > 0 {
		t.Errorf("initialize in a batch: status %d, header %v", batch.status, batch.header)
	}
}

func TestGatewayAnswersNotificationsOnRPC(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"x"}`, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}`, `[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","method":"y"}]`,
	} {
		f.echo.Reset()
		got := f.onRPC(t, body)
		if got.status != 202 || got.body != "" {
			t.Errorf("%s: status %d, body %q, want 202 and nothing", body, got.status, got.body)
		}
		if seen := f.last(t); string(seen.Body) != body {
			t.Errorf("the upstream saw %s", seen.Body)
		}
	}
	f.untouched(t, func() {
		for _, body := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, `[{"jsonrpc":"2.0","id":1,"result":{}}]`} {
			refused(t, f.onRPC(t, body), 400, -32600) // nobody asked
		}
	})
}

func TestGatewayTellsWhatAServerDoesNotHave(t *testing.T) {
	t.Parallel()
	echo := testfleet.NewEcho(t, testfleet.Config{})
	for _, tt := range []struct{ mcp, rpc, path string }{{echo.Origin() + "/mcp", "", "/rpc"}, {"", echo.Origin() + "/rpc", "/mcp"}} {
		server := shared.addServer(t, tt.mcp, tt.rpc)
		_, token := shared.addToken(t, server)
		path := "/servers/" + server + tt.path
		refused(t, shared.do(t, call{path: path, token: token, body: rpc("1", "tools/list", "")}), 501, -31501)
		refused(t, shared.do(t, call{path: path, body: rpc("1", "tools/list", "")}), 401, -31401)
	}
	if n := len(echo.Requests()); n > 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
}

// Envoy writes the body of a 502 around the caller's id: the id must come out
// as it came in, and nothing in it may be taken for a format.
func TestGatewayEchoesHostileIDsWhenTheUpstreamIsGone(t *testing.T) {
	t.Parallel()
	url := "http://127.0.0.1:1/"
	server := shared.addServer(t, url+"mcp", url+"rpc")
	_, token := shared.addToken(t, server)
	for _, id := range []string{
		`"plain"`, `7`, `1.50e2`, `"%REQ(authorization)%"`, `"%STREAM_ID%"`, `"100%"`, `"%%"`, `"a\"b\\c"`, `"\u0000\u001f"`, `"<script>"`, `"é\ud83d\ude00"`, `""`, `"` + strings.Repeat("i", 1000) + `"`,
	} {
		t.Run(id[:min(len(id), 20)], func(t *testing.T) {
			got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc(id, "ping", "")})
			if got.status != 502 || got.code() != -31502 || !strings.Contains(got.body, `"id":`+id+`,`) {
				t.Errorf("status %d, body %.300s, want 502 with the id %.100s", got.status, got.body, id)
			}
		})
	}
	got := shared.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: initialize})
	if got.status != 502 || got.code() != -31502 || len(got.header.Values("Mcp-Session-Id")) > 0 {
		t.Errorf("/mcp: status %d, header %v, body %s", got.status, got.header, got.body)
	}
}

// Positions instead of names: only where nothing is selected by name.
func TestGatewayPassesPositionsOnlyWithoutASelector(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	f.seen(t, call{path: f.rpc(), token: f.token, body: rpc("1", "sum", `[1,2]`)})
	f.untouched(t, func() {
		for _, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete", "logging/setLevel"} {
			refused(t, f.onRPC(t, rpc("1", method, `["echo"]`)), 400, -32602)
		}
		refused(t, f.onMCP(t, session, rpc("1", "sum", `[1,2]`)), 400, -32602)
	})
}

// A request that is not the server's own never tells whether its upstream lives.
func TestGatewayAsksNoUpstreamForStrangers(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.echo.Reset()
	for _, c := range []call{{body: ping}, {body: ping, token: "arb_at_x"}, {method: "GET"}, {method: "OPTIONS"}, {body: "{"}} {
		for _, path := range []string{f.rpc(), f.mcp()} {
			c.path = path
			refused(t, f.do(t, c), 401, -31401)
		}
	}
	if n := len(f.echo.Requests()); n > 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
}
