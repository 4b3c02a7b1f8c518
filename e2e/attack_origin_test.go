//go:build e2e

package e2e

import (
	"net"
	"slices"
	"strings"
	"testing"
)

func TestGatewayRefusesForeignHosts(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	_, port, _ := net.SplitHostPort(f.addr)
	for _, host := range []string{
		"evil.example", "evil.example:" + port, "localhost.evil.example", "localhost.evil.example:" + port, "evil.example@localhost",
		"localhost@evil.example", "localhost.", "127.0.0.2", "127.1", "2130706433", "0.0.0.0", "169.254.169.254", "[::]", "[::ffff:7f00:1]x",
		"localhost:" + port + ".evil.example", "localhost,evil.example", "xlocalhost", f.echo.Addr() + ".evil.example",
	} {
		t.Run(host, func(t *testing.T) {
			f.untouched(t, func() {
				request := strings.Replace(f.post(f.rpc(), ping), "Host: "+f.authority(), "Host: "+host, 1)
				if got := f.first(t, request); got.status != 400 { // what is no host at all
					refused(t, got, 421, -32600)
				}
				fields := f.fields("POST", f.rpc())
				fields[2][1] = host
				if got := f.frames(t, h2{fields: fields, body: ping}); got.status != 0 && got.status != 400 {
					refused(t, got, 421, -32600)
				}
			})
		})
	}
	t.Run("421 comes before authentication", func(t *testing.T) {
		refused(t, f.do(t, call{path: f.rpc(), host: "evil.example", body: ping}), 421, -32600)
	})
	for _, host := range []string{"localhost:" + port, "LOCALHOST:" + port, "localhost", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8443"} {
		t.Run("own name "+host, func(t *testing.T) {
			if got := f.do(t, call{path: f.rpc(), host: host, token: f.token, body: ping}); got.status != 200 {
				t.Errorf("status %d, body %s, want 200", got.status, got.body)
			}
		})
	}
}

func TestGatewayRefusesSeveralHosts(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.untouched(t, func() {
		for _, lines := range []string{"Host: evil.example", "Host: " + f.authority(), "HOST: localhost", "Host: [::1]"} {
			for _, got := range f.wire(t, f.post(f.rpc(), ping, lines)) {
				if got.status < 400 {
					t.Errorf("%q: status %d", lines, got.status)
				}
			}
		}
		for _, host := range []string{"", "Host:\r\n", "Host: \t\r\n"} {
			request := strings.Replace(f.post(f.rpc(), ping), "Host: "+f.authority()+"\r\n", host, 1)
			if got := f.first(t, request); got.status != 400 && got.status != 421 {
				t.Errorf("with %q: status %d", host, got.status)
			}
		}
	})
	// In HTTP/2 :authority wins, and the other one goes no further.
	f.echo.Reset()
	got := f.frames(t, h2{fields: f.fields("POST", f.rpc(), [2]string{"host", "evil.example"}), body: ping})
	for _, r := range f.echo.Requests() {
		if hosts := r.Values("Host"); !slices.Equal(hosts, []string{f.echo.Addr()}) {
			t.Errorf("status %d, the upstream saw the hosts %q", got.status, hosts)
		}
	}
}

// Origins that may call: the base URL, loopback ones (the base URL is one), and
// those listed for this server alone.
func TestGatewayRefusesForeignOrigins(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--origin", "https://app.example", "--origin", "https://app.example:8444", "--origin", "vscode-webview://0a1b2c")
	other := newFront(t, "--origin", "https://other.example")
	for _, origin := range []string{
		"null", "NULL", "https://evil.example", "http://app.example", "https://app.example:8445", "https://app.example.evil.example",
		"https://xapp.example", "https://app.example/", "https://app.example/path", "https://app.example?x", "https://app.example?",
		"https://app.example#x", "https://user@app.example", "app.example", "//app.example", "https://", "https:app.example",
		"https://app.example https://evil.example", "https://app.example, https://evil.example", "*", "file://", "https://other.example",
		"https://localhost.evil.example", "https://localhost.", "https://127.0.0.1.evil.example", "https://evil.example:443@localhost",
		"ftp://localhost", "localhost", "https://0.0.0.0", "https://[::]", "https://2130706433", "https://app.example:99999", "https://app.example\\.evil.example",
		"vscode-webview://0a1b2c.evil.example", "vscode-webview://localhost", "vscode-webview://",
	} {
		t.Run(origin, func(t *testing.T) {
			f.untouched(t, func() {
				for _, http2 := range []bool{false, true} {
					got := f.do(t, call{path: f.rpc(), token: f.token, body: ping, http2: http2, header: map[string]string{"Origin": origin}})
					refused(t, got, 403, -31403)
					noCORS(t, got)
					refused(t, f.do(t, call{path: f.mcp(), body: initialize, http2: http2, header: map[string]string{"Origin": origin}}), 403, -31403)
				}
			})
		})
	}
	t.Run("empty", func(t *testing.T) {
		f.untouched(t, func() { refused(t, f.first(t, f.post(f.rpc(), ping, "Origin:")), 403, -31403) })
	})
	t.Run("two", func(t *testing.T) {
		f.untouched(t, func() {
			refused(t, f.first(t, f.post(f.rpc(), ping, "Origin: https://app.example", "Origin: https://evil.example")), 403, -31403)
			refused(t, f.first(t, f.post(f.rpc(), ping, "Origin: https://app.example", "Origin: https://app.example")), 403, -31403)
			refused(t, f.first(t, f.post(f.rpc(), ping, "Origin: http://localhost", "Origin: http://localhost")), 403, -31403)
		})
	})
	for _, origin := range []string{
		"https://app.example", "https://app.example:8444", "vscode-webview://0a1b2c", f.base, "http://localhost:5173", "http://127.0.0.1", "http://[::1]:3000",
	} {
		t.Run("allowed "+origin, func(t *testing.T) {
			got := f.do(t, call{path: f.rpc(), token: f.token, body: ping, header: map[string]string{"Origin": origin}})
			if got.status != 200 {
				t.Fatalf("status %d, body %s, want 200", got.status, got.body)
			}
			cors(t, got, origin)
		})
	}
	if got := other.do(t, call{path: other.rpc(), token: other.token, body: ping, header: map[string]string{"Origin": "https://other.example"}}); got.status != 200 {
		t.Errorf("the other server's origin at the other server: %d", got.status)
	}
}

// cors checks that a page of origin can read the answer, without credentials
// mode.
func cors(t *testing.T, got reply, origin string) {
	t.Helper()
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":      origin,
		"Access-Control-Expose-Headers":    "Mcp-Session-Id, WWW-Authenticate, Retry-After, arbiter-decision, arbiter-request-id",
		"Access-Control-Allow-Credentials": "",
	} {
		if values := got.header.Values(name); len(values) > 1 || got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, values, want)
		}
	}
	if got.status == 200 && !slices.ContainsFunc(got.header.Values("Vary"), func(v string) bool { return strings.Contains(v, "Origin") }) {
		t.Errorf("vary %q, want Origin: a cache would give the answer to another page", got.header.Values("Vary"))
	}
}

func noCORS(t *testing.T, got reply) {
	t.Helper()
	for name := range got.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%s: %q, want none", name, got.header.Values(name))
		}
	}
}

func TestGatewayAnswersPreflightsWithoutACredential(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--origin", "https://app.example")
	ask := map[string]string{
		"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
		"Access-Control-Request-Headers": "authorization,content-type,mcp-param-Region,x-evil,mcp-param-\u00e9,mcp-param-a;b",
	}
	for _, tt := range []struct{ path, methods string }{{f.mcp(), "POST, GET, DELETE"}, {f.rpc(), "POST"}} {
		f.untouched(t, func() {
			got := f.do(t, call{method: "OPTIONS", path: tt.path, header: ask})
			if got.status != 204 || got.body != "" || got.header.Get("Access-Control-Allow-Methods") != tt.methods {
				t.Errorf("%s: status %d, body %q, methods %q, want 204 and %q", tt.path, got.status, got.body, got.header.Get("Access-Control-Allow-Methods"), tt.methods)
			}
			cors(t, got, "https://app.example")
			names := strings.Split(strings.ToLower(got.header.Get("Access-Control-Allow-Headers")), ", ")
			want := []string{"authorization", "content-type", "accept", "last-event-id", "mcp-session-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-param-region"}
			if !slices.Equal(names, want) {
				t.Errorf("%s: allowed headers %q, want %q", tt.path, names, want)
			}
		})
	}
	for _, origin := range []string{"https://evil.example", "null"} {
		f.untouched(t, func() {
			ask["Origin"] = origin
			got := f.do(t, call{method: "OPTIONS", path: f.mcp(), header: ask})
			refused(t, got, 403, -31403)
			noCORS(t, got)
		})
	}
	t.Run("a foreign host", func(t *testing.T) {
		ask["Origin"] = "https://app.example"
		refused(t, f.do(t, call{method: "OPTIONS", path: f.mcp(), host: "evil.example", header: ask}), 421, 0)
	})
	t.Run("not a preflight", func(t *testing.T) {
		refused(t, f.do(t, call{method: "OPTIONS", path: f.mcp(), header: map[string]string{"Origin": "https://app.example"}}), 401, -31401)
		refused(t, f.do(t, call{method: "OPTIONS", path: f.mcp(), header: map[string]string{"Access-Control-Request-Method": "POST"}}), 401, -31401)
		delete(ask, "Access-Control-Request-Method")
		refused(t, f.do(t, call{method: "OPTIONS", path: f.mcp(), token: f.token, header: ask}), 405, 0)
	})
}

// A page must be able to read why it was refused.
func TestGatewayPutsCORSHeadersOnEveryKindOfAnswer(t *testing.T) {
	t.Parallel()
	const origin = "https://app.example"
	f := newFront(t, "--origin", origin)
	dead := f.addServer(t, "", "http://127.0.0.1:1/rpc", "--origin", origin)
	_, deadToken := f.addToken(t, dead)
	for _, tt := range []struct {
		name     string
		call     call
		want     int
		decision string
	}{
		{"a result", call{path: f.rpc(), token: f.token, body: ping}, 200, "allow"},
		{"an opened session", call{path: f.mcp(), token: f.token, body: initialize}, 200, "allow"},
		{"no credential", call{path: f.rpc(), body: ping}, 401, "deny"},
		{"a bad credential", call{path: f.rpc(), token: "arb_at_x", body: ping}, 401, "deny"},
		{"a query", call{path: f.rpc() + "?x", token: f.token, body: ping}, 400, "deny"},
		{"a bad body", call{path: f.rpc(), token: f.token, body: "{"}, 400, "deny"},
		{"no session", call{path: f.mcp(), token: f.token, body: ping}, 400, "deny"},
		{"a method", call{method: "PUT", path: f.rpc(), token: f.token, body: ping}, 405, "deny"},
		{"an upstream that is gone", call{path: "/servers/" + dead + "/rpc", token: deadToken, body: ping}, 502, "allow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.call.header = map[string]string{"Origin": origin}
			got := f.do(t, tt.call)
			if got.status != tt.want {
				t.Fatalf("status %d, body %s, want %d", got.status, got.body, tt.want)
			}
			cors(t, got, origin)
			marked(t, got, tt.decision)
			tt.call.header = nil
			noCORS(t, f.do(t, tt.call))
		})
	}
}
