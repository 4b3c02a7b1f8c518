//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// told is what an SDK makes of a denied tools/call on /mcp.
type told struct {
	ID     json.RawMessage `json:"id"`
	Error  json.RawMessage `json:"error"`
	Result struct {
		IsError    bool   `json:"isError"`
		ResultType string `json:"resultType"`
		Content    []struct{ Type, Text string }
	} `json:"result"`
}

// toolDenied checks a denial that an agent can read and that ends no session.
func toolDenied(t *testing.T, text, id, tool, resultType string) {
	t.Helper()
	var got told
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	r := got.Result
	if string(got.ID) != id || got.Error != nil || !r.IsError || r.ResultType != resultType || len(r.Content) != 1 || r.Content[0].Type != "text" ||
		!strings.Contains(r.Content[0].Text, tool) || !strings.Contains(r.Content[0].Text, "tools:call") {
		t.Errorf("body %s, want one text about %s for the id %s", text, tool, id)
	}
}

// A denied call keeps its session: any 4xx would end it in some SDKs.
func TestGatewayDeniesToolsOutsideTheScopes(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--eras", "legacy,modern")
	_, f.token = f.addToken(t, f.server, "--scope", "mcp:connect", "--scope", "tools:call:echo")
	session := f.session(t, f.server, f.token)
	tool := func(name string) string { return rpc(`"a-1"`, "tools/call", `{"name":"`+name+`","arguments":{}}`) }
	for _, name := range []string{"add", "Echo", "ECHO", "echo ", " echo", "echo\\u0000", "echo:x", "ech", "echoo", "*", "tools:call", "\\u0435cho"} {
		t.Run(name, func(t *testing.T) {
			f.echo.Reset()
			got := f.onMCP(t, session, tool(name))
			marked(t, got, "deny")
			if got.status != 200 || got.header.Get("Content-Type") != "application/json" {
				t.Fatalf("status %d, header %v, body %s, want 200", got.status, got.header, got.body)
			}
			toolDenied(t, got.body, `"a-1"`, "tool", "")
			if !strings.Contains(got.body, got.header.Get("Arbiter-Request-Id")) {
				t.Errorf("body %s, want the request id in it", got.body)
			}
			got = f.onRPC(t, tool(name))
			refused(t, got, 403, -31403)
			if !strings.Contains(got.body, `"id":"a-1"`) || !strings.Contains(got.body, `"reason":"scope_missing"`) || !strings.Contains(got.body, `"request_id":"`+got.header.Get("Arbiter-Request-Id")) {
				t.Errorf("body %s, want id, reason and request id", got.body)
			}
			modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add"}
			got = f.do(t, call{path: f.mcp(), token: f.token, body: rpc("3", "tools/call", `{"name":"add",`+modernMeta+`}`), header: modern})
			if got.status != 200 {
				t.Fatalf("modern: status %d, body %s, want 200", got.status, got.body)
			}
			toolDenied(t, got.body, "3", "add", "complete")
			if n := len(f.echo.Requests()); n > 0 {
				t.Errorf("the upstream saw %d requests", n)
			}
			if got := f.onMCP(t, session, tool("echo")); got.status != 200 || strings.Contains(got.body, "isError") {
				t.Errorf("the allowed tool in the same session: status %d, body %s", got.status, got.body)
			}
		})
	}
	if got := f.onRPC(t, tool("echo")); got.status != 200 {
		t.Errorf("the allowed tool on /rpc: status %d, body %s", got.status, got.body)
	}
	if got := f.onMCP(t, session, rpc("1", "tools/list", "")); got.status != 200 || got.code() != 0 {
		t.Errorf("tools/list: status %d, body %s", got.status, got.body)
	}
}

// The whole table of what a token without mcp:connect is told.
func TestGatewayDeniesWhatAScopeDoesNotGive(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	literal := newFront(t, "--denials", "http")
	for _, tt := range []struct {
		f    front
		want int // of a denied request on /mcp
	}{{f, 200}, {literal, 403}} {
		t.Run(map[int]string{200: "mcp", 403: "http"}[tt.want], func(t *testing.T) {
			f := tt.f
			_, narrow := f.addToken(t, f.server, "--scope", "tools:call:echo")
			got := f.do(t, call{path: f.mcp(), token: narrow, body: initialize})
			refused(t, got, tt.want, -31403)
			if len(got.header.Values("Mcp-Session-Id")) > 0 || !strings.Contains(got.body, `"id":1,`) {
				t.Errorf("header %v, body %s, want the id and no session", got.header, got.body)
			}
			// A session can be had with the right to connect alone.
			id, connect := f.addToken(t, f.server, "--scope", "mcp:connect")
			session := f.session(t, f.server, connect)
			sealed := map[string]string{"Mcp-Session-Id": session}
			f.untouched(t, func() {
				got := f.do(t, call{path: f.mcp(), token: connect, body: rpc("6", "tools/call", `{"name":"echo"}`), header: sealed})
				marked(t, got, "deny")
				if tt.want == 200 {
					toolDenied(t, got.body, "6", "echo", "")
				} else {
					refused(t, got, 403, -31403)
				}
				for _, method := range []string{"tools/list", "prompts/get", "resources/read", "logging/setLevel", "x/y"} {
					params := map[string]string{"prompts/get": `{"name":"x"}`, "resources/read": `{"uri":"x:y"}`, "logging/setLevel": `{"level":"info"}`}[method]
					refused(t, f.do(t, call{path: f.rpc(), token: narrow, body: rpc("6", method, params)}), 403, -31403)
				}
			})
			for _, body := range []string{rpc("6", "tools/list", ""), rpc("6", "x/y", ""), rpc("6", "ping", ""), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":6,"result":{}}`} {
				if got := f.do(t, call{path: f.mcp(), token: connect, body: body, header: sealed}); got.status > 202 || got.code() != 0 {
					t.Errorf("%s: status %d, body %s, want it let through", body, got.status, got.body)
				}
			}
			if _, err := f.cli(t, "", "token", "delete", f.server, id); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A notification has no answer, so its denial has none either. What asks for no
// answer is still a call.
func TestGatewayDeniesNotificationsWithoutAWord(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	_, connect := f.addToken(t, f.server, "--scope", "mcp:connect")
	session := f.session(t, f.server, connect)
	literal := newFront(t, "--denials", "http")
	_, literalConnect := literal.addToken(t, literal.server, "--scope", "mcp:connect")
	literalSession := literal.session(t, literal.server, literalConnect)
	const denied = `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}`
	f.untouched(t, func() {
		got := f.do(t, call{path: f.mcp(), token: connect, body: denied, header: map[string]string{"Mcp-Session-Id": session}})
		refused(t, got, 202, 0)
		if got.body != "" {
			t.Errorf("body %q, want none", got.body)
		}
		refused(t, f.do(t, call{path: f.rpc(), token: connect, body: denied}), 403, -31403)
	})
	literal.untouched(t, func() {
		refused(t, literal.do(t, call{path: literal.mcp(), token: literalConnect, body: denied, header: map[string]string{"Mcp-Session-Id": literalSession}}), 403, -31403)
	})
}

// A batch is passed on whole or not at all.
func TestGatewayDeniesBatchesWhole(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--batches")
	_, f.token = f.addToken(t, f.server, "--scope", "mcp:connect", "--scope", "tools:call:echo")
	old := f.do(t, call{path: f.mcp(), token: f.token, body: strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)}).header.Get("Mcp-Session-Id")
	session := f.session(t, f.server, f.token)
	item := func(id, tool string) string { return rpc(id, "tools/call", `{"name":"`+tool+`"}`) }
	const note = `{"jsonrpc":"2.0","method":"notifications/cancelled"}`
	batch := func(items ...string) string { return "[" + strings.Join(items, ",") + "]" }
	denied := batch(item("1", "echo"), note, item(`"b"`, "admin"), rpc("3", "ping", ""))
	f.untouched(t, func() {
		got := f.onRPC(t, denied)
		refused(t, got, 403, 0)
		ids(t, got.body, "-31403", "1", `"b"`, "3")
		got = f.onMCP(t, old, denied)
		refused(t, got, 200, 0)
		ids(t, got.body, "", "1", `"b"`, "3")
		refused(t, f.onMCP(t, old, batch(note, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"admin"}}`)), 202, 0)
		refused(t, f.onMCP(t, session, batch(item("1", "echo"))), 400, 0) // of another revision
		unknownSession(t, f.onMCP(t, "made-up", batch(item("1", "echo"), item("2", "echo"))))
		for name, body := range map[string]string{
			"empty": "[]", "33": "[" + strings.TrimSuffix(strings.Repeat(ping+",", 33), ",") + "]", "nested": "[[" + ping + "]]", "null in it": batch(ping, "null"), "one bad": batch(ping, `{"jsonrpc":"2.0"}`),
			"response in it": batch(ping, `{"jsonrpc":"2.0","id":1,"result":{},"method":"x"}`), "duplicate key in it": batch(ping, `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`), "trailing comma": "[" + ping + ",]",
		} {
			for _, got := range []reply{f.onRPC(t, body), f.onMCP(t, old, body)} {
				if got.status != 400 || (got.code() != -32600 && got.code() != -32700) {
					t.Errorf("%s: status %d, body %s", name, got.status, got.body)
				}
			}
		}
		versionRefused(t, f.onMCP(t, old, batch(ping, rpc("2", "server/discover", ""))), "", legacyVersions...)
	})
	allowed := batch(item("1", "echo"), note, rpc("3", "ping", ""))
	f.seen(t, call{path: f.rpc(), token: f.token, body: allowed})
	if r := f.seen(t, call{path: f.mcp(), token: f.token, body: allowed, header: map[string]string{"Mcp-Session-Id": old}}); string(r.Body) != allowed {
		t.Errorf("the upstream saw %s", r.Body)
	}
	f.seen(t, call{path: f.rpc(), token: f.token, body: "[" + strings.TrimSuffix(strings.Repeat(ping+",", 32), ",") + "]"})
	without := newFront(t)
	old = without.do(t, call{path: without.mcp(), token: without.token, body: strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)}).header.Get("Mcp-Session-Id")
	without.untouched(t, func() { refused(t, without.onMCP(t, old, batch(ping)), 400, -32600) })
}

// ids checks the ids of an array of answers, and that the text stands in each.
func ids(t *testing.T, body, each string, want ...string) {
	t.Helper()
	var answers []json.RawMessage
	if err := json.Unmarshal([]byte(body), &answers); err != nil || len(answers) != len(want) {
		t.Fatalf("%v: body %s, want %d answers", err, body, len(want))
	}
	for i, answer := range answers {
		var m told
		if err := json.Unmarshal(answer, &m); err != nil || string(m.ID) != want[i] || !strings.Contains(string(answer), each) {
			t.Errorf("answer %d: %s, want the id %s and %s", i, answer, want[i], each)
		}
	}
}
