//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// challenge is the one WWW-Authenticate of a 401, as contract section 2 writes
// it.
func (g *gateway) challenge(path string, presented bool) string {
	want := `Bearer resource_metadata="` + g.base + `/.well-known/oauth-protected-resource` + path + `", scope="mcp:connect tools:call"`
	if presented {
		want += `, error="invalid_token"`
	}
	return want
}

// unauthorized checks a 401 in full: status, challenge, and that nothing beside
// the request id and what was dialled tells one refusal from another.
func (g *gateway) unauthorized(t *testing.T, got reply, path string, presented bool) {
	t.Helper()
	refused(t, got, 401, -31401)
	if values := got.header.Values("Www-Authenticate"); len(values) != 1 || values[0] != g.challenge(path, presented) {
		t.Errorf("challenge %q, want %q", values, g.challenge(path, presented))
	}
	id := got.header.Get("Arbiter-Request-Id")
	if id == "" || !strings.Contains(got.body, id) {
		t.Errorf("body %s, want the request id %q in it", got.body, id)
	}
}

// anonymous is an answer without what may differ between two requests.
func anonymous(r reply, path string) string {
	header := maps.Clone(r.header)
	id := header.Get("Arbiter-Request-Id")
	for name, values := range header {
		header[name] = []string{strings.NewReplacer(path, "PATH", id, "ID").Replace(strings.Join(values, "|"))}
	}
	delete(header, "Date")
	return fmt.Sprint(r.status, header, strings.ReplaceAll(r.body, id, "ID"))
}

func TestGatewayRefusesMalformedCredentials(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	good := f.token
	flipped := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(good, "0")]
	f.untouched(t, func() {
		none := f.do(t, call{path: f.rpc(), body: ping})
		f.unauthorized(t, none, f.rpc(), false)
		f.unauthorized(t, f.do(t, call{path: f.mcp(), body: ping}), f.mcp(), false)
		none.header.Set("Www-Authenticate", f.challenge(f.rpc(), true))
		want := anonymous(none, f.rpc()) // but for error=, no credential looks like a bad one
		for name, value := range map[string]string{
			"empty": "", "scheme alone": "Bearer", "no token": "Bearer ", "token alone": good, "two spaces": "Bearer  " + good,
			"a tab": "Bearer\t" + good, "basic": "Basic " + good, "another scheme": "Token " + good, "longer scheme": "Bearers " + good,
			"digest": "Digest " + good, "colon": "Bearer: " + good, "equals": "Bearer=" + good, "comma behind": "Bearer " + good + ",",
			"comma in front": ",Bearer " + good, "two in one": "Bearer " + good + ", Bearer " + good, "parameter": "Bearer " + good + ";x=1",
			"quoted": `Bearer "` + good + `"`, "two tokens": "Bearer " + good + " " + good, "latin-1": "Bearer " + good + "\xe9",
			"percent-encoded": "Bearer " + strings.Replace(good, "_", "%5f", 1), "nothing behind the prefix": "Bearer arb_at_",
			"shortened": "Bearer " + good[:len(good)-1], "lengthened": "Bearer " + good + "A", "other checksum": "Bearer " + good[:len(good)-1] + flipped,
			"other random part": "Bearer " + good[:7] + strings.Repeat("A", 32) + good[39:], "upper case": "Bearer " + strings.ToUpper(good),
			"another kind": "Bearer arb_op_" + good[7:], "client secret": "Bearer arb_cs_" + good[7:], "a JWT": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.x",
			"unsigned JWT": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.", "the token's id": "Bearer " + f.server, "invented": "Bearer arb_at_" + strings.Repeat("a", 49),
			"too long": "Bearer " + strings.Repeat("a", 5000), "wrong letters": "Bearer " + strings.Replace(good, "arb", "\u0430rb", 1),
		} {
			t.Run(name, func(t *testing.T) {
				request := strings.Replace(f.post(f.rpc(), ping), "Authorization: Bearer "+good, "Authorization: "+value, 1)
				got := f.first(t, request)
				f.unauthorized(t, got, f.rpc(), true)
				got.header.Del("Connection") // of HTTP/1.1, asked for
				if text := anonymous(got, f.rpc()); text != want {
					t.Errorf("answer\n%s\ndiffers from that without a credential\n%s", text, want)
				}
			})
		}
	})
	for _, scheme := range []string{"Bearer", "bearer", "BEARER", "bEaReR"} {
		if got := f.do(t, call{path: f.rpc(), body: ping, header: map[string]string{"Authorization": scheme + " " + good}}); got.status != 200 {
			t.Errorf("scheme %q: status %d, want 200", scheme, got.status)
		}
	}
}

func TestGatewayRefusesTwoCredentials(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	_, second := f.addToken(t, f.server)
	for name, value := range map[string]string{"the same": "Bearer " + f.token, "another good one": "Bearer " + second, "basic": "Basic eDp5", "nonsense": "x"} {
		t.Run(name, func(t *testing.T) {
			f.untouched(t, func() {
				f.unauthorized(t, f.first(t, f.post(f.rpc(), ping, "Authorization: "+value)), f.rpc(), true)
				f.unauthorized(t, f.first(t, f.post(f.rpc(), ping, "authorization: "+value)), f.rpc(), true)
				got := f.frames(t, h2{fields: f.fields("POST", f.rpc(), [2]string{"authorization", value}), body: ping})
				f.unauthorized(t, got, f.rpc(), true)
			})
		})
	}
}

// Wrong server, unknown server, revoked, expired and malformed look alike.
func TestGatewayRefusesCredentialsAllAlike(t *testing.T) {
	t.Parallel()
	f, other := newFront(t), newFront(t)
	gone, disabled := newFront(t), newFront(t)
	revokedID, revoked := f.addToken(t, f.server)
	_, expired := f.addToken(t, f.server, "--expires", "1s")
	const unknown = "7b0e2f0a-9f0e-4c1b-8d3a-2f6f3f0f9a11"
	for _, token := range []string{revoked, other.token} { // good, and in the cache
		server := map[bool]string{true: f.rpc(), false: other.rpc()}[token == revoked]
		if got := f.do(t, call{path: server, token: token, body: ping}); got.status != 200 {
			t.Fatalf("status %d, body %s, want 200", got.status, got.body)
		}
	}
	for _, args := range [][]string{{"token", "delete", f.server, revokedID}, {"server", "delete", gone.server}, {"server", "disable", disabled.server}} {
		if _, err := f.cli(t, "", args...); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the token has expired", func() bool { return f.do(t, call{path: f.rpc(), token: expired, body: ping}).status == 401 })
	f.untouched(t, func() {
		other.untouched(t, func() {
			for _, transport := range []string{"/rpc", "/mcp"} {
				malformed := f.do(t, call{path: "/servers/" + f.server + transport, token: "arb_at_x", body: ping})
				want := anonymous(malformed, "/servers/"+f.server+transport)
				for _, tt := range []struct{ name, server, token string }{
					{"of another server", f.server, other.token},
					{"of this server at another one", other.server, f.token},
					{"at an unknown server", unknown, f.token},
					{"revoked", f.server, revoked},
					{"expired", f.server, expired},
					{"of a deleted server", gone.server, gone.token},
					{"of another server at a deleted one", gone.server, f.token},
					{"of another server at a disabled one", disabled.server, f.token},
					{"malformed at an unknown server", unknown, "x"},
				} {
					t.Run(tt.name+transport, func(t *testing.T) {
						path := "/servers/" + tt.server + transport
						for _, http2 := range []bool{false, true} {
							got := f.do(t, call{path: path, token: tt.token, body: ping, http2: http2})
							f.unauthorized(t, got, path, true)
							if text := anonymous(got, path); text != want {
								t.Errorf("answer\n%s\ndiffers from that for a malformed one\n%s", text, want)
							}
						}
					})
				}
				t.Run("none at an unknown server"+transport, func(t *testing.T) {
					path := "/servers/" + unknown + transport
					f.unauthorized(t, f.do(t, call{path: path, body: ping}), path, false)
				})
			}
		})
	})
}

// until polls a condition of another process.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for tick := time.NewTicker(50 * time.Millisecond); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in 15 s: %s", what)
		}
	}
}

// Without a credential nobody learns what a path takes: 401 comes before
// methods, Accept, media types, encodings, sessions and bodies.
func TestGatewayAuthenticatesBeforeItReads(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, tt := range []struct {
		name, transport, method, body string
		header                        map[string]string
		want                          int // with a credential
	}{
		{"method", "/rpc", "PUT", ping, nil, 405},
		{"GET on /rpc", "/rpc", "GET", "", nil, 405},
		{"accept", "/mcp", "POST", ping, map[string]string{"Accept": "text/plain"}, 406},
		{"media type", "/rpc", "POST", ping, map[string]string{"Content-Type": "text/plain"}, 415},
		{"encoding", "/rpc", "POST", ping, map[string]string{"Content-Encoding": "gzip"}, 415},
		{"not JSON", "/rpc", "POST", "{", nil, 400},
		{"empty", "/rpc", "POST", "", nil, 415},
		{"a batch", "/mcp", "POST", "[" + ping + "]", nil, 400},
		{"no session", "/mcp", "POST", ping, nil, 400},
		{"foreign session", "/mcp", "POST", ping, map[string]string{"Mcp-Session-Id": "x"}, 404},
		{"unknown version", "/mcp", "POST", ping, map[string]string{"Mcp-Protocol-Version": "1999-01-01"}, 400},
		{"GET without accept", "/mcp", "GET", "", map[string]string{"Accept": "text/plain"}, 406},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.untouched(t, func() {
				c := call{method: tt.method, path: "/servers/" + f.server + tt.transport, body: tt.body, header: tt.header}
				f.unauthorized(t, f.do(t, c), c.path, false)
				c.token = f.token
				refused(t, f.do(t, c), tt.want, 0)
			})
		})
	}
	t.Run("duplicate headers", func(t *testing.T) {
		request := f.post(f.rpc(), ping, "Mcp-Session-Id: a", "Mcp-Session-Id: b")
		anonymous := strings.Replace(request, "Authorization: Bearer "+f.token+"\r\n", "", 1)
		f.untouched(t, func() {
			refused(t, f.first(t, anonymous), 401, -31401)
			refused(t, f.first(t, request), 400, -32600)
		})
	})
}

// The id of a sound body is echoed in a 401; that is all that reads it.
func TestGatewayEchoesTheIDOfAnUnauthenticatedRequest(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, tt := range []struct{ name, path, body, want string }{
		{"integer", f.rpc(), rpc("7", "tools/list", ""), `"id":7,`},
		{"odd number", f.rpc(), rpc("1.50e2", "tools/list", ""), `"id":1.50e2,`},
		{"string", f.mcp(), rpc(`"a\u00e9"`, "tools/list", ""), `"id":"a\u00e9",`},
		{"notification on /rpc", f.rpc(), `{"jsonrpc":"2.0","method":"x"}`, `"id":null,`},
		{"notification on /mcp", f.mcp(), `{"jsonrpc":"2.0","method":"x"}`, `"2.0","error"`},
		{"not sound", f.rpc(), `{"jsonrpc":"2.0","id":7,"id":8,"method":"x"}`, `"id":null,`},
		{"not sound on /mcp", f.mcp(), `{"jsonrpc":"2.0","id":7,"method":""}`, `"2.0","error"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, token := range []string{"", "arb_at_x"} {
				got := f.do(t, call{path: tt.path, token: token, body: tt.body})
				if got.status != http.StatusUnauthorized || !strings.Contains(got.body, tt.want) {
					t.Errorf("status %d, body %s, want 401 with %s", got.status, got.body, tt.want)
				}
			}
		})
	}
}
