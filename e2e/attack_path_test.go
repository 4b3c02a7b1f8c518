//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// What is not exactly one of the two paths never reaches the upstream. Where
// Envoy makes one of them by normalising, the normalised path is what counts.
func TestGatewayRefusesOtherSpellingsOfAPath(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	s := "/servers/" + f.server
	for _, tt := range []struct {
		name, target string
		want         int
	}{
		{"upper case uuid", "/servers/" + strings.ToUpper(f.server) + "/rpc", 404},
		{"uuid without dashes", "/servers/" + strings.ReplaceAll(f.server, "-", "") + "/rpc", 404},
		{"uuid in braces", "/servers/{" + f.server + "}/rpc", 404},
		{"trailing slash", s + "/rpc/", 404},
		{"longer suffix", s + "/rpc/extra", 404},
		{"suffix glued on", s + "/rpcx", 404},
		{"suffix in upper case", s + "/RPC", 404},
		{"no suffix", s, 404},
		{"no suffix but a slash", s + "/", 404},
		{"identity of a later release", s + "/identity/bootstrap", 404},
		{"parameter", s + "/rpc;x=1", 404},
		{"parameter of a segment", s + ";x=1/rpc", 404},
		{"encoded slash", s + "%2frpc", 400},
		{"encoded slash, upper case", s + "%2Frpc", 400},
		{"encoded backslash", s + "%5crpc", 400},
		{"encoded slash out of the path", s + "/rpc/..%2f..%2fadmin", 400},
		{"backslash", s + `\admin`, 404},
		{"encoded NUL", s + "/rpc%00", 400},
		{"encoded question mark", s + "/rpc%3fx=1", 404},
		{"encoded semicolon", s + "/rpc%3b", 404},
		{"encoded line break", s + "/rpc%0d%0aX-Arbiter-Server:%201", 404},
		{"encoded twice", s + "/%2572pc", 404},
		{"fragment", s + "/rpc#x", 400},
		{"dot segments to another route", s + "/rpc/../../../admin", 404},
		{"dot segments past the root", "/../../etc/passwd", 404},
		{"other letters that look alike", s + "/rp\u0441", 400},
		{"nothing", "/", 404},
		{"no leading slash", "servers/" + f.server + "/rpc", 400},
		{"asterisk", "*", 400},
		{"xds", "/v3/discovery:clusters", 404},
		{"admin", "/config_dump", 404},
		{"health", "/readyz", 404},
		{"api", "/api/v1/servers", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.untouched(t, func() {
				got := f.first(t, f.post(tt.target, ping))
				if got.status != tt.want {
					t.Errorf("HTTP/1.1: status %d, body %s, want %d", got.status, got.body, tt.want)
				}
				if len(got.header.Values("Arbiter-Request-Id")) != 1 {
					t.Errorf("HTTP/1.1: request ids %q, want one", got.header.Values("Arbiter-Request-Id"))
				}
				got = f.frames(t, h2{fields: f.fields("POST", tt.target), body: ping})
				if got.status != 400 && got.status != 404 && got.status != 0 {
					t.Errorf("HTTP/2: status %d, body %s, want 400, 404 or a reset", got.status, got.body)
				}
			})
		})
	}
}

// Whatever of these is normalised into the path of a server is decided as that
// path: without the credential of that server it is refused, with it the
// upstream sees its own path and nothing of the spelling.
func TestGatewayDecidesOnTheNormalisedPath(t *testing.T) {
	t.Parallel()
	f, other := newFront(t), newFront(t)
	for _, target := range []string{
		"/servers/" + other.server + "/../" + f.server + "/rpc",
		"/servers/" + other.server + "/%2e%2e/" + f.server + "/rpc",
		"/servers/" + other.server + `\..\` + f.server + `\rpc`,
		"//servers/" + f.server + "/rpc",
		"/servers//" + f.server + "///rpc",
		"/servers/" + f.server + "/./rpc",
		"/servers/" + f.server + "/mcp/../rpc",
		"/servers/" + f.server + "/%72pc",
	} {
		t.Run(target, func(t *testing.T) {
			f.untouched(t, func() {
				other.untouched(t, func() { refused(t, f.first(t, other.post(target, ping)), 401, -31401) })
			})
			f.echo.Reset()
			if got := f.first(t, f.post(target, ping)); got.status != 200 {
				t.Fatalf("status %d, body %s, want 200", got.status, got.body)
			}
			if got := f.last(t).Target; got != "/base/rpc" {
				t.Errorf("the upstream saw the path %q", got)
			}
		})
	}
}

func TestGatewayRefusesQueries(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, query := range []string{
		"?", "?x=1", "??", "?access_token=" + f.token, "?authorization=Bearer%20" + f.token, "?/../../admin", "?%00",
	} {
		for _, path := range []string{f.rpc(), f.mcp()} {
			t.Run(path[len(path)-3:]+query[:min(len(query), 8)], func(t *testing.T) {
				f.untouched(t, func() {
					refused(t, f.first(t, f.post(path+query, ping)), 400, -32600)
					if got := f.frames(t, h2{fields: f.fields("POST", path+query), body: ping}); got.status != 0 {
						refused(t, got, 400, -32600)
					}
				})
			})
		}
	}
}

// A token anywhere but in its header is no credential.
func TestGatewayRefusesTokensOutsideTheirHeader(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, tt := range []struct{ name, line, body string }{
		{"in a cookie", "Cookie: access_token=" + f.token + "; Authorization=Bearer " + f.token, ping},
		{"in another header", "X-Api-Key: " + f.token, ping},
		{"in a header for proxies", "Proxy-Authorization: Bearer " + f.token, ping},
		{"in the body", "X: y", `{"jsonrpc":"2.0","id":1,"method":"ping","access_token":"` + f.token + `"}`},
		{"in an odd header", "Authorization-: Bearer " + f.token, ping},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request := strings.Replace(f.post(f.rpc(), tt.body, tt.line), "Authorization: Bearer "+f.token+"\r\n", "", 1)
			f.untouched(t, func() { refused(t, f.first(t, request), 401, -31401) })
		})
	}
}

// An absolute-form target overrides Host (RFC 9112, section 3.2.2).
func TestGatewayTakesTheHostOfAnAbsoluteTarget(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.untouched(t, func() {
		refused(t, f.first(t, f.post("https://evil.example"+f.rpc(), ping)), 421, -32600)
		refused(t, f.first(t, f.post("http://169.254.169.254"+f.rpc(), ping)), 421, -32600)
		refused(t, f.first(t, f.post("https://localhost@evil.example"+f.rpc(), ping)), 421, -32600)
	})
	f.echo.Reset()
	request := strings.Replace(f.post(f.base+f.rpc(), ping), "Host: "+f.authority(), "Host: evil.example", 1)
	if got := f.first(t, request); got.status != 200 {
		t.Fatalf("status %d, body %s, want 200", got.status, got.body)
	}
	if got := f.last(t); got.Value("Host") != f.echo.Addr() || got.Target != "/base/rpc" {
		t.Errorf("the upstream saw %q %q", got.Value("Host"), got.Target)
	}
}
