package xds_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/metadata"
)

// forged is what a client could try to say in the name of the gateway, of Envoy
// or of a proxy in front.
var forgedRequest = []string{
	"X-Arbiter-Cluster", "tls-system", "X-Arbiter-Principal-Id", "root", "Arbiter-Request-Id", "mine",
	"X-Request-Id", "mine", "X-Envoy-Upstream-Rq-Timeout-Ms", "1", "X-Envoy-Original-Path", "/x",
	"X-Envoy-Internal", "true", "X-Envoy-Max-Retries", "3", "X-Forwarded-For", "10.0.0.1", "X-Forwarded-Proto", "gopher",
	"X-Forwarded-Host", "evil", "X-Forwarded-Client-Cert", "By=me", "Forwarded", "for=10.0.0.1", "X-Real-Ip", "10.0.0.1",
	"Proxy-Authorization", "Basic eDp5", "Authorization", "Bearer secret", "Cookie", "a=b", "Te", "trailers",
}

// TestEnvoyStripsForgedRequestHeaders holds that neither Check nor the upstream
// sees a forged header, and that the request id is Envoy's, also for a client
// on loopback, which Envoy would trust by default.
func TestEnvoyStripsForgedRequestHeaders(t *testing.T) {
	g := startGateway(t, nil)
	up := newTLSUpstream(t, g.authority, "up.example", answerJSON(`{}`))
	to := toURL(up.URL)
	to.cluster, to.host = "tls-system", "up.example"
	to.request = map[string]string{"x-arbiter-principal-id": "alice", "x-envoy-upstream-rq-timeout-ms": "5000"}
	type check struct {
		header map[string]string
		about  metadata.MD
	}
	checks := make(chan check, 1)
	id := g.check(func(ctx context.Context, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
		c := check{header: map[string]string{}}
		for _, h := range in.GetAttributes().GetRequest().GetHttp().GetHeaderMap().GetHeaders() {
			c.header[h.GetKey()] += string(h.GetRawValue())
		}
		c.about, _ = metadata.FromIncomingContext(ctx)
		checks <- c
		return to.allow(), nil
	})
	for _, http2 := range []bool{false, true} {
		got := g.do(t, g.client(http2), "POST", "/servers/"+id+"/rpc", `{}`, forgedRequest...)
		checkAnswer(t, got)
		asked := <-checks
		requestID := got.header.Get("Arbiter-Request-Id")
		for i := 0; i < len(forgedRequest); i += 2 {
			name, value := strings.ToLower(forgedRequest[i]), forgedRequest[i+1]
			if name != "authorization" && name != "cookie" && name != "te" && strings.Contains(asked.header[name], value) {
				t.Errorf("Check saw %s: %s", name, asked.header[name])
			}
		}
		for name, want := range map[string]string{"x-arbiter-stream": requestID, "x-arbiter-peer-address": "127.0.0.1:"} {
			if values := asked.about.Get(name); len(values) != 1 || !strings.HasPrefix(values[0], want) {
				t.Errorf("Check was told %s %q, want %s", name, values, want)
			}
		}
		if connection := asked.about.Get("x-arbiter-connection"); len(connection) != 1 || connection[0] == "" {
			t.Errorf("connection %q", connection)
		}
		last, _ := up.seen()
		names := slices.Sorted(maps.Keys(last.Header))
		want := []string{"Content-Length", "User-Agent", "X-Arbiter-Principal-Id", "X-Forwarded-For", "X-Forwarded-Proto", "X-Request-Id"}
		if !slices.Equal(slices.DeleteFunc(names, func(n string) bool { return n == "Te" }), want) {
			t.Errorf("upstream saw %v", last.Header)
		}
		if last.Header.Get("X-Request-Id") != requestID || last.Header.Get("X-Arbiter-Principal-Id") != "alice" ||
			last.Header.Get("X-Forwarded-Proto") != "https" || strings.Contains(last.Header.Get("X-Forwarded-For"), "10.0.0.1") {
			t.Errorf("upstream saw %v", last.Header)
		}
		if last.ProtoMajor != 2 {
			t.Errorf("upstream spoke %s, though it offers HTTP/2", last.Proto)
		}
	}
}

// TestEnvoyStripsUpstreamHeaders holds that an upstream cannot speak in the
// gateway's name, while Check's own headers of the same names arrive.
func TestEnvoyStripsUpstreamHeaders(t *testing.T) {
	g := startGateway(t, nil)
	hostile := func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{
			"WWW-Authenticate", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Status", "Set-Cookie", "Location",
			"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers",
			"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Refresh", "Arbiter-Request-Id", "Arbiter-Decision",
			"X-Arbiter-Anything", "X-Envoy-Upstream-Service-Time", "Mcp-Session-Id", "X-Content-Type-Options", "Server", "X-Request-Id",
		} {
			w.Header()[name] = []string{"theirs", "theirs too"}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Etag", "kept")
		_, _ = w.Write([]byte(`{}`))
	}
	plain, encrypted := newUpstream(t, hostile), newTLSUpstream(t, g.authority, "up.example", hostile)
	ours := map[string]string{"access-control-allow-origin": "https://ours", "access-control-expose-headers": "mcp-session-id"}
	first, second := toURL(plain.URL), toURL(encrypted.URL)
	first.answer = ours                                             // on Check's answer,
	second.origin, second.expose = "https://ours", "mcp-session-id" // or in its metadata
	second.cluster, second.host = "tls-system", "up.example"
	for _, to := range []target{first, second} {
		id := g.route(to)
		for _, http2 := range []bool{false, true} {
			got := g.do(t, g.client(http2), "POST", "/servers/"+id+"/mcp", `{}`)
			checkAnswer(t, got)
			for name, values := range got.header {
				for _, value := range values {
					if strings.Contains(value, "theirs") {
						t.Errorf("%s: %q has passed", name, values)
					}
				}
			}
			for name, want := range map[string]string{
				"Access-Control-Allow-Origin": "https://ours", "Access-Control-Expose-Headers": "mcp-session-id",
				"Etag": "kept", "Server": "arbiter", "Content-Type": "application/json",
			} {
				if values := got.header.Values(name); !slices.Equal(values, []string{want}) {
					t.Errorf("%s is %q, want %q", name, values, want)
				}
			}
		}
	}
}

// TestEnvoyDropsTrailers holds that trailers pass in neither direction.
func TestEnvoyDropsTrailers(t *testing.T) {
	g := startGateway(t, nil)
	seen := make(chan http.Header, 1)
	up := newTLSUpstream(t, g.authority, "up.example", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 64)
		for {
			if _, err := r.Body.Read(body); err != nil {
				break
			}
		}
		seen <- r.Trailer
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Trailer", "X-After, Set-Cookie")
		_, _ = w.Write([]byte(`{}`))
		w.Header().Set("X-After", "theirs")
		w.Header().Set("Set-Cookie", "a=b")
	})
	to := toURL(up.URL)
	to.cluster, to.host = "tls-system", "up.example"
	id := g.route(to)
	for _, http2 := range []bool{false, true} {
		request, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/servers/"+id+"/rpc", strings.NewReader(`{"a":1}`))
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = -1
		request.Trailer = http.Header{"X-Late": {"mine"}, "X-Arbiter-Principal-Id": {"root"}}
		answer, err := g.client(http2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, answer)
		if trailer := <-seen; len(trailer.Get("X-Late")+trailer.Get("X-Arbiter-Principal-Id")) > 0 {
			t.Errorf("upstream saw trailers %v", trailer)
		}
		for name, values := range answer.Trailer {
			if len(values) > 0 {
				t.Errorf("client saw the trailer %s: %q", name, values)
			}
		}
		if got.status != 200 || got.body != `{}` {
			t.Errorf("got %+v", got)
		}
	}
}
