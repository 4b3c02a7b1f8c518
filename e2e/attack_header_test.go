//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// More than one of these could be read as the first by one and as the last by
// another.
func TestGatewayRefusesDuplicateHeaders(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	for _, tt := range []struct {
		name, one, two string
		length         bool // Content-Length: refused while reading, with no denial of ours
	}{
		{"content-type", "application/json", "text/plain", false},
		{"content-type", "application/json", "application/json", false},
		{"content-length", "40", "40", true},
		{"content-length", "40", "41", true},
		{"mcp-session-id", session, "x", false},
		{"mcp-session-id", "x", session, false},
		{"mcp-session-id", session, session, false},
		{"mcp-session-id", session, "", false},
		{"mcp-protocol-version", "2025-11-25", "2025-06-18", false},
		{"mcp-protocol-version", "2025-11-25", "2025-11-25", false},
		{"mcp-method", "ping", "tools/call", false},
		{"mcp-method", "ping", "ping", false},
		{"mcp-name", "a", "b", false},
		{"mcp-name", "a", "a", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{f.rpc(), f.mcp()} {
				base := f.post(path, ping)
				for _, replaced := range []string{"Content-Type: application/json\r\n", "Content-Length: 40\r\n"} {
					if name, _, _ := strings.Cut(replaced, ":"); strings.EqualFold(name, tt.name) {
						base = strings.Replace(base, replaced, "", 1)
					}
				}
				lines := tt.name + ": " + tt.one + "\r\n" + strings.ToUpper(tt.name) + ": " + tt.two + "\r\n"
				f.untouched(t, func() {
					got := f.first(t, strings.Replace(base, "\r\n\r\n", "\r\n"+lines+"\r\n", 1))
					duplicate(t, got, tt.length)
					fields := slices.DeleteFunc(f.fields("POST", path), func(f [2]string) bool { return f[0] == tt.name })
					fields = append(fields, [2]string{tt.name, tt.one}, [2]string{tt.name, tt.two})
					duplicate(t, f.frames(t, h2{fields: fields, body: ping}), tt.length)
				})
			}
		})
	}
	if got := f.onMCP(t, session, ping); got.status != 200 {
		t.Errorf("each header once: status %d, body %s", got.status, got.body)
	}
}

func duplicate(t *testing.T, got reply, early bool) {
	t.Helper()
	switch {
	case early && (got.status == 0 || got.status == 400):
	case got.status == 415: // joined by a comma, as Envoy does with Content-Type
		refused(t, got, 415, -32600)
	default:
		refused(t, got, 400, -32600)
	}
}

// What a client sends in the gateway's, a proxy's or Envoy's name goes no
// further than the listener, and changes nothing.
func TestGatewayDropsForgedHeaders(t *testing.T) {
	t.Parallel()
	f, other := newFront(t), newFront(t)
	const forged = "forged-value"
	names := []string{
		"x-arbiter-principal-kind", "x-arbiter-principal-id", "x-arbiter-principal-name", "x-arbiter-server", "x-arbiter-request-id", "x-arbiter-cluster",
		"x-arbiter-stream", "x-arbiter-peer-address", "x-arbiter-new", "arbiter-decision", "arbiter-request-id",
		"x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-max-retries", "x-envoy-retry-on", "x-envoy-original-path",
		"x-envoy-original-dst-host", "x-envoy-decorator-operation", "x-envoy-auth-partial-body", "x-envoy-internal", "x-envoy-external-address",
		"x-envoy-original-url", "x-envoy-force-trace", "x-envoy-attempt-count", "x-envoy-expected-rq-timeout-ms", "x-envoy-upstream-alt-stat-name",
		"x-forwarded-client-cert", "x-forwarded-host", "x-forwarded-path", "x-forwarded-prefix", "x-forwarded-for", "x-forwarded-proto", "forwarded", "x-real-ip",
		"x-request-id", "proxy-authorization", "proxy-connection",
	}
	seen := func(t *testing.T, r testfleet.Request) {
		t.Helper()
		for _, field := range r.Fields {
			if strings.Contains(field.Value, forged) {
				t.Errorf("the upstream saw %s: %s", field.Name, field.Value)
			}
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			f.echo.Reset()
			got := f.first(t, f.post(f.rpc(), ping, name+": "+forged, strings.ToUpper(name)+": "+forged))
			if got.status != 200 || strings.Contains(strings.Join(got.header.Values("Arbiter-Request-Id"), ","), forged) {
				t.Fatalf("HTTP/1.1: status %d, header %v, body %s", got.status, got.header, got.body)
			}
			marked(t, got, "allow")
			seen(t, f.last(t))
			f.echo.Reset()
			if got := f.frames(t, h2{fields: f.fields("POST", f.rpc(), [2]string{name, forged}), body: ping}); got.status == 200 {
				seen(t, f.last(t))
			} else if name != "proxy-connection" { // hop by hop: not in HTTP/2
				t.Errorf("HTTP/2: status %d, body %s", got.status, got.body)
			}
		})
	}
	t.Run("all at once, with what would matter", func(t *testing.T) {
		lines := []string{
			"x-arbiter-server: " + other.server, "x-arbiter-cluster: plain", "x-envoy-upstream-rq-timeout-ms: 1", "x-envoy-original-dst-host: " + other.echo.Addr(),
			"x-forwarded-client-cert: Hash=00;URI=spiffe://x/servers/" + f.server, "x-envoy-auth-partial-body: true", "x-forwarded-proto: http", "x-envoy-internal: true",
		}
		other.untouched(t, func() {
			f.echo.Reset()
			got := f.first(t, f.post(f.rpc(), ping, lines...))
			if got.status != 200 || f.last(t).Value("X-Arbiter-Server") != f.server {
				t.Errorf("status %d, body %s", got.status, got.body)
			}
			noToken := strings.Replace(f.post(f.rpc(), ping, lines...), "Authorization: Bearer "+f.token+"\r\n", "", 1)
			f.untouched(t, func() { refused(t, f.first(t, noToken), 401, -31401) })
		})
	})
}

// Some upstreams read "_" as "-".
func TestGatewayRefusesUnderscoreHeaders(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, name := range []string{"x_arbiter_principal_id", "X_Arbiter_Server", "x-arbiter_server", "x_envoy_retry_on", "x_forwarded_client_cert", "mcp_session_id", "content_length", "a_b"} {
		t.Run(name, func(t *testing.T) {
			f.untouched(t, func() {
				if got := f.first(t, f.post(f.rpc(), ping, name+": 1")); got.status != 400 {
					t.Errorf("HTTP/1.1: status %d, want 400", got.status)
				}
				if got := f.frames(t, h2{fields: f.fields("POST", f.rpc(), [2]string{strings.ToLower(name), "1"}), body: ping}); got.status != 0 && got.status != 400 {
					t.Errorf("HTTP/2: status %d, want a reset or 400", got.status)
				}
			})
		})
	}
}

// Connection names what the next hop must not see: that may take rights away,
// never add or change what the gateway says.
func TestGatewayIsNotFooledByConnectionOptions(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	f.untouched(t, func() {
		f.unauthorized(t, f.first(t, f.post(f.rpc(), ping, "Connection: close, authorization")), f.rpc(), false)
		refused(t, f.first(t, f.post(f.mcp(), ping, "Mcp-Session-Id: "+session, "Connection: mcp-session-id")), 400, -32600)
	})
	for _, option := range []string{
		"x-arbiter-principal-id", "x-arbiter-server", "x-arbiter-cluster", "x-arbiter-request-id", "content-length", "content-type", "x-request-id", "host", "te", ":path", "accept",
	} {
		t.Run(option, func(t *testing.T) {
			f.echo.Reset()
			for _, got := range f.wire(t, f.post(f.rpc(), ping, "Connection: "+option)) {
				if got.status >= 500 {
					t.Errorf("status %d, body %s", got.status, got.body)
				}
			}
			for _, r := range f.echo.Requests() {
				if string(r.Body) != ping || r.Value("X-Arbiter-Server") != f.server || r.Value("X-Arbiter-Principal-Kind") != "access_token" || r.Value("X-Arbiter-Request-Id") == "" {
					t.Errorf("the upstream saw %q %q", r.Fields, r.Body)
				}
			}
		})
	}
}

// What an upstream gets: who called, the server's own headers, and nothing by
// which it could call as the caller.
func TestGatewayPassesNoCredentialOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, value := range map[string]string{"auth": "Basic b3duOmtleQ==", "key": "own-key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plain := newFront(t)
	own := newFront(t, "--header", "Authorization=@"+dir+"/auth", "--header", "X-Api-Key=@"+dir+"/key")
	for _, tt := range []struct {
		f         front
		auth, key []string
	}{{plain, nil, nil}, {own, []string{"Basic b3duOmtleQ=="}, []string{"own-key"}}} {
		_, token := tt.f.addToken(t, tt.f.server, "--name", "Zoë 100%")
		cookies := [2]string{"cookie", "session=stolen"}
		for _, path := range []string{tt.f.rpc(), tt.f.mcp()} {
			body := map[bool]string{true: ping, false: initialize}[path == tt.f.rpc()]
			fields := tt.f.fields("POST", path, cookies, cookies, [2]string{"x-own", "passes"})
			fields[4][1] = "bearer " + token
			raw := strings.Replace(tt.f.post(path, body, "Cookie: session=stolen", "Cookie: other=1", "X-Own: passes"), tt.f.token, token, 1)
			for _, send := range []func() reply{
				func() reply { return tt.f.first(t, raw) },
				func() reply {
					return tt.f.frames(t, h2{fields: fields, body: body, trailers: [][2]string{{"x-trailer", "1"}, {"authorization", "Bearer x"}, {"x-arbiter-server", "x"}}})
				},
			} {
				tt.f.echo.Reset()
				if got := send(); got.status != 200 {
					t.Fatalf("status %d, body %s", got.status, got.body)
				}
				r := tt.f.last(t)
				for name, want := range map[string][]string{
					"Authorization": tt.auth, "X-Api-Key": tt.key, "Cookie": nil, "X-Arbiter-Cluster": nil, "X-Own": {"passes"},
					"X-Arbiter-Principal-Kind": {"access_token"}, "X-Arbiter-Principal-Name": {"Zo%C3%AB%20100%25"}, "X-Arbiter-Server": {tt.f.server},
					"Host": {tt.f.echo.Addr()}, "Mcp-Session-Id": nil,
				} {
					if got := r.Values(name); !slices.Equal(got, want) {
						t.Errorf("the upstream saw %s: %q, want %q", name, got, want)
					}
				}
				if len(r.Values("X-Arbiter-Principal-Id")) != 1 || len(r.Values("X-Arbiter-Request-Id")) != 1 || len(r.Trailers) > 0 {
					t.Errorf("the upstream saw %q, trailers %q", r.Fields, r.Trailers)
				}
				for _, field := range r.Fields {
					if strings.Contains(field.Value, token) || strings.HasPrefix(strings.ToLower(field.Name), "x-envoy-") {
						t.Errorf("the upstream saw %s: %s", field.Name, field.Value)
					}
				}
			}
		}
	}
}

func TestGatewayDropsTrailersOfChunkedRequests(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	head := f.head("POST", f.rpc(), "Host: "+f.authority(), "Authorization: Bearer "+f.token, "Content-Type: application/json", "Transfer-Encoding: chunked",
		"Trailer: X-Trailer, Authorization")
	f.echo.Reset()
	got := f.first(t, head+"\r\n28\r\n"+ping+"\r\n0\r\nX-Trailer: 1\r\nAuthorization: Bearer x\r\nX-Arbiter-Server: x\r\n\r\n")
	if got.status != 200 {
		t.Fatalf("status %d, body %s, want 200", got.status, got.body)
	}
	if r := f.last(t); string(r.Body) != ping || len(r.Trailers) > 0 || len(r.Values("X-Trailer")) > 0 {
		t.Errorf("the upstream saw %q, trailers %q, body %q", r.Fields, r.Trailers, r.Body)
	}
}
