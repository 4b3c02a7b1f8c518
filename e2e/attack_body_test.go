//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

const toolcall = `"method":"tools/call"`

// Bodies that two readers could take for different things. Each is refused on
// both paths, with or without a session, before anybody is asked.
func TestGatewayRefusesBodiesReadTwoWays(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	for _, tt := range []struct {
		name, body string
		code       int
	}{
		{"duplicate method", `{"jsonrpc":"2.0","id":1,"method":"ping",` + toolcall + `}`, -32700},
		{"duplicate id", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, -32700},
		{"duplicate method with an escape", `{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}`, -32700},
		{"duplicate tool", rpc("1", "tools/call", `{"name":"echo","name":"admin"}`), -32700},
		{"duplicate params", `{"jsonrpc":"2.0","id":1,` + toolcall + `,"params":{"name":"echo"},"params":{"name":"admin"}}`, -32700},
		{"duplicate key deep in arguments", rpc("1", "tools/call", `{"name":"echo","arguments":{"a":[{"b":1,"b":2}]}}`), -32700},
		{"case-folded method", `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, -32600},
		{"case-folded method alone", `{"jsonrpc":"2.0","id":1,"METHOD":"ping"}`, -32600},
		{"method with a long s", `{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{"name":"admin"}}`, -32600},
		{"id with a dotless i", `{"jsonrpc":"2.0","id":1,"method":"ping","\u0131d":2}`, -32600},
		{"case-folded tool", rpc("1", "tools/call", `{"name":"echo","Name":"admin"}`), -32602},
		{"case-folded arguments", rpc("1", "tools/call", `{"name":"echo","arguments":{},"ARGUMENTS":{"a":1}}`), -32602},
		{"key with a space", rpc("1", "tools/call", `{"name":"echo","name ":"admin"}`), -32602},
		{"key with a NUL", rpc("1", "tools/call", `{"name":"echo","name\u0000":"admin"}`), -32602},
		{"key with a zero-width space", rpc("1", "tools/call", `{"name":"echo","na\u200bme":"admin"}`), -32602},
		{"key in meta", rpc("1", "tools/call", `{"name":"echo","_meta":{"progresstoken":1}}`), -32602},
		{"arguments that differ by case", rpc("1", "tools/call", `{"name":"echo","arguments":{"path":"/a","PATH":"/b"}}`), -32602},
		{"lone high surrogate", rpc("1", "tools/call", `{"name":"echo","arguments":{"a":"\ud800"}}`), -32700},
		{"lone low surrogate", rpc("1", "tools/call", `{"name":"\udc00"}`), -32700},
		{"surrogate in a key", rpc("1", "tools/call", `{"name":"echo","arguments":{"\ud800":1}}`), -32700},
		{"invalid UTF-8", rpc("1", "ping", `{"a":"`) + "\xff\"}}", -32700},
		{"overlong UTF-8", strings.Replace(ping, "ping", "\xc0\xaf", 1), -32700},
		{"byte order mark", "\ufeff" + ping, -32700},
		{"UTF-16", "\xff\xfe{\x00}\x00", -32700},
		{"trailing message", ping + ping, -32700},
		{"trailing line", ping + "\n" + ping, -32700},
		{"trailing brace", ping + "}", -32700},
		{"trailing NUL", ping + "\x00", -32700},
		{"NaN", rpc("1", "tools/call", `{"name":"echo","arguments":{"a":NaN}}`), -32700},
		{"infinity", rpc("1", "tools/call", `{"name":"echo","arguments":{"a":-Infinity}}`), -32700},
		{"leading zero", rpc("01", "ping", ""), -32700},
		{"plus sign", rpc("+1", "ping", ""), -32700},
		{"hexadecimal", rpc("0x1", "ping", ""), -32700},
		{"single quotes", `{'jsonrpc':'2.0','id':1,'method':'ping'}`, -32700},
		{"comment", `{"jsonrpc":"2.0",/*"id":2,*/"id":1,"method":"ping"}`, -32700},
		{"trailing comma", `{"jsonrpc":"2.0","id":1,"method":"ping",}`, -32700},
		{"unquoted key", `{jsonrpc:"2.0","id":1,"method":"ping"}`, -32700},
		{"raw line break in a string", strings.Replace(ping, "ping", "pi\nng", 1), -32700},
		{"cut short", ping[:len(ping)-1], -32700},
		{"blank", " \r\n\t", -32700},
		{"too deep", rpc("1", "tools/call", `{"name":"echo","arguments":`+strings.Repeat("[", 63)+strings.Repeat("]", 63)+`}`), -32700},
		{"far too deep", strings.Repeat(`{"a":`, 100_000), -32700},
		{"form", "method=ping&id=1", -32700},
		{"a string", `"ping"`, -32600},
		{"null", `null`, -32600},
		{"no version", `{"id":1,"method":"ping"}`, -32600},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600},
		{"version as number", `{"jsonrpc":2.0,"id":1,"method":"ping"}`, -32600},
		{"no method", `{"jsonrpc":"2.0","id":1}`, -32600},
		{"empty method", rpc("1", "", ""), -32600},
		{"method as array", `{"jsonrpc":"2.0","id":1,"method":["ping"]}`, -32600},
		{"null id", rpc("null", "ping", ""), -32600},
		{"boolean id", rpc("true", "ping", ""), -32600},
		{"array id", rpc("[1]", "ping", ""), -32600},
		{"params as string", rpc("1", "ping", `"x"`), -32600},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, -32600},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, -32600},
		{"no tool", rpc("1", "tools/call", `{}`), -32602},
		{"tool as number", rpc("1", "tools/call", `{"name":1}`), -32602},
		{"tool as null", rpc("1", "tools/call", `{"name":null}`), -32602},
		{"empty tool", rpc("1", "tools/call", `{"name":""}`), -32602},
		{"tool in an array", rpc("1", "tools/call", `["echo"]`), -32602},
		{"no prompt", rpc("1", "prompts/get", `{"Name":"x"}`), -32602},
		{"no uri", rpc("1", "resources/read", `{"name":"x"}`), -32602},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.untouched(t, func() {
				refused(t, f.onRPC(t, tt.body), 400, tt.code)
				refused(t, f.onMCP(t, session, tt.body), 400, tt.code)
				refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: tt.body, http2: true}), 400, tt.code)
			})
		})
	}
}

func TestGatewayRefusesEmptyBodies(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	chunked := strings.Replace(f.post(f.rpc(), ""), "Content-Length: 0", "Transfer-Encoding: chunked", 1) + "0\r\n\r\n"
	f.untouched(t, func() {
		refused(t, f.first(t, f.post(f.rpc(), "")), 400, -32700)
		refused(t, f.first(t, f.post(f.mcp(), "")), 400, -32700)
		refused(t, f.first(t, chunked), 400, -32700)
		refused(t, f.frames(t, h2{fields: f.fields("POST", f.rpc())}), 400, -32700)
	})
}

// The twin of the above: what looks alike but has one reading passes, byte for
// byte.
func TestGatewayPassesBodiesWithOneReading(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	for _, body := range []string{
		" \r\n" + ping + "\n\t",
		`{"method":"ping","id":1,"jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","extra":{"Method":1,"method":2}}`,
		rpc("1", "tools/call", `{"name":"Echo","arguments":{"Name":"x","name ":"y","a":"\ud83d\ude00"}}`),
		rpc("1", "tools/call", `{"name":"a b\u00e9\u0000","arguments":null}`),
		rpc("1", "tools/call", `{"name":"echo","arguments":`+strings.Repeat("[", 62)+strings.Repeat("]", 62)+`}`),
		rpc("9007199254740991", "ping", ""), rpc("-9007199254740991", "ping", ""), rpc("0", "ping", ""), rpc(`""`, "ping", "null"),
		rpc(`"`+strings.Repeat("i", 1022)+`"`, "ping", ""),
		`{"jsonrpc":"2.0","id":1,"method":"custom/\u006dethod","params":{"a":1e999}}`,
	} {
		t.Run(body[:min(len(body), 60)], func(t *testing.T) {
			for _, http2 := range []bool{false, true} {
				if r := f.seen(t, call{path: f.rpc(), token: f.token, body: body, http2: http2}); string(r.Body) != body {
					t.Errorf("the upstream saw %q", r.Body)
				}
				sealed := map[string]string{"Mcp-Session-Id": session}
				if r := f.seen(t, call{path: f.mcp(), token: f.token, body: body, http2: http2, header: sealed}); string(r.Body) != body {
					t.Errorf("the upstream saw %q", r.Body)
				}
			}
		})
	}
}

// Ids outside of what every JSON reader keeps are for /rpc only, where they are
// echoed byte for byte.
func TestGatewayKeepsIDsAsTheyAre(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	_, narrow := f.addToken(t, f.server, "--scope", "identity:bootstrap")
	for _, id := range []string{"1.0", "1e2", "1E+2", "-0", "0.1", "9007199254740992", "-9007199254740992", strings.Repeat("9", 400), "1e400", "1.5"} {
		t.Run(id[:min(len(id), 20)], func(t *testing.T) {
			body, want := rpc(id, "tools/list", ""), `"id":`+id+`,`
			if got := f.onRPC(t, body); got.status != 200 || !strings.Contains(got.body, want) {
				t.Errorf("answered: status %d, body %s, want %s", got.status, got.body, want)
			}
			f.untouched(t, func() {
				got := f.do(t, call{path: f.rpc(), token: narrow, body: body})
				refused(t, got, 403, -31403)
				if !strings.Contains(got.body, want) {
					t.Errorf("denied: body %s, want %s", got.body, want)
				}
				if id == "-0" { // an integer, and within the range
					return
				}
				refused(t, f.onMCP(t, session, body), 400, -32600)
			})
		})
	}
}

// What is echoed, logged or handed on in a header has a limit long before the
// body has.
func TestGatewaySurvivesHugeValues(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	f.untouched(t, func() {
		for _, size := range []int{1023, 64 << 10, 1 << 20, 4<<20 - 100} {
			body := rpc(`"`+strings.Repeat("i", size)+`"`, "tools/list", "")
			refused(t, f.onRPC(t, body), 400, -32600)
			refused(t, f.onMCP(t, session, body), 400, -32600)
			got := f.do(t, call{path: f.rpc(), body: body})
			refused(t, got, 401, -31401)
			if len(got.body) > 1<<10 {
				t.Errorf("%d bytes: the 401 has %d", size, len(got.body))
			}
		}
	})
	method := strings.Repeat("m", 1<<20)
	if got := f.onMCP(t, session, rpc("1", method, "")); got.status != 200 {
		t.Errorf("a long method: status %d, body %.200s", got.status, got.body)
	}
	_, narrow := f.addToken(t, f.server, "--scope", "mcp:connect")
	f.untouched(t, func() {
		got := f.do(t, call{path: f.rpc(), token: narrow, body: rpc("1", "tools/call", `{"name":"`+method+`"}`)})
		refused(t, got, 403, -31403)
		if len(got.body) > 1<<10 {
			t.Errorf("a long tool: the denial has %d bytes", len(got.body))
		}
	})
}
