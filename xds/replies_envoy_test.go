package xds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/arbiter-gateway/arbiter/xds"
)

// wantError is the body of contract section 4 for an answer that Envoy makes.
func wantError(t *testing.T, got result, status, code int, id string) {
	t.Helper()
	checkAnswer(t, got)
	start := fmt.Sprintf(`{"jsonrpc":"2.0",%s"error":{"code":%d,"message":"`, id, code)
	end := fmt.Sprintf(`","data":{"request_id":"%s"}}}`, got.header.Get("Arbiter-Request-Id"))
	if got.status != status || !strings.HasPrefix(got.body, start) || !strings.HasSuffix(strings.TrimSpace(got.body), end) {
		t.Errorf("got %d %q, want %d %s...%s", got.status, got.body, status, start, end)
	}
	if kind := got.header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("content type %q", kind)
	}
}

// eachError calls do on both paths and both protocols of HTTP.
func (g *gateway) eachError(t *testing.T, server string, status, code int) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		c := g.client(http2)
		wantError(t, g.do(t, c, "POST", "/servers/"+server+"/rpc", `{}`), status, code, `"id":null,`)
		wantError(t, g.do(t, c, "POST", "/servers/"+server+"/mcp", `{}`), status, code, ``)
	}
}

// TestEnvoyFailsClosedWithoutExtauthz kills extauthz, and finds it again
// without a restart of anything else.
func TestEnvoyFailsClosedWithoutExtauthz(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, answerJSON(`{}`))
	server := g.route(toURL(up.URL))
	g.stopExtauthz()
	g.eachError(t, server, 503, -31503)
	if _, hits := up.seen(); hits > 0 {
		t.Fatalf("the upstream was hit %d times", hits)
	}
	g.startExtauthz()
	c, deadline := g.client(true), time.Now().Add(5*time.Second)
	for got := (result{}); got.status != 200; {
		if got = g.do(t, c, "POST", "/servers/"+server+"/rpc", `{}`); got.status != 200 && time.Now().After(deadline) {
			t.Fatalf("no recovery: %+v", got)
		}
	}
}

// TestEnvoyFailsClosedOnBadChecks lists what is no answer of Check.
func TestEnvoyFailsClosedOnBadChecks(t *testing.T) {
	g := startGateway(t, func(s *xds.State) { s.Times.Check = 200 * time.Millisecond })
	up := newUpstream(t, answerJSON(`{}`))
	good := toURL(up.URL)
	without := func(key string) func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
		return func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
			to := good
			to.without = key
			return to.allow(), nil
		}
	}
	with := func(edit func(*target)) func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
		return func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
			to := good
			edit(&to)
			return to.allow(), nil
		}
	}
	tests := []struct {
		name  string
		check func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error)
	}{
		{"an error", func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
			return nil, errors.New("out of order")
		}},
		{"too slow", func(ctx context.Context, _ *authv3.CheckRequest) (*authv3.CheckResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		{"no address", without("dst")},
		{"no host", without("host")},
		{"no path", without("path")},
		{"no mark for guard", without("guard")},
		{"an unknown mark", with(func(to *target) { to.mark = "maybe" })},
		{"an unknown cluster", with(func(to *target) { to.cluster = "tls-0000000000000000" })},
		{"no cluster", with(func(to *target) { to.cluster = "" })},
		{"a header that is none", with(func(to *target) { to.request = map[string]string{"x-key": "a\r\nb"} })},
		{"another path by header", with(func(to *target) { to.request = map[string]string{":path": "/x"} })},
		{"another host by header", with(func(to *target) { to.request = map[string]string{"host": "x"} })},
		{"an empty OK", func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
			return &authv3.CheckResponse{}, nil
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { g.eachError(t, g.check(test.check), 503, -31503) })
	}
	if _, hits := up.seen(); hits > 0 {
		t.Errorf("the upstream was hit %d times", hits)
	}
}

// TestEnvoyLeavesDenialsAlone holds that what Check says reaches the caller as
// it is, also with statuses that Envoy uses for itself.
func TestEnvoyLeavesDenialsAlone(t *testing.T) {
	g := startGateway(t, nil)
	for _, status := range []int32{200, 202, 400, 401, 403, 404, 405, 408, 413, 421, 429, 500, 502, 503, 504} {
		server := g.check(func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
			return deny(status, `{"ours":true}`), nil
		})
		for _, http2 := range []bool{false, true} {
			got := g.do(t, g.client(http2), "POST", "/servers/"+server+"/mcp", `{}`)
			checkAnswer(t, got)
			if got.status != int(status) || got.body != `{"ours":true}` || got.header.Get("Www-Authenticate") != "Bearer ours" ||
				got.header.Get("Access-Control-Allow-Origin") != "https://ours" || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("denial %d came as %+v", status, got)
			}
		}
	}
}

// TestEnvoyBlamesTheUpstream lists what a dead, hostile or slow server does.
func TestEnvoyBlamesTheUpstream(t *testing.T) {
	g := startGateway(t, nil)
	closed := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	silent := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does Go's server notice that the client has gone
		<-r.Context().Done()
	})
	limit := func(name string) func(*target) {
		return func(to *target) { to.request = map[string]string{name: "200"} }
	}
	tests := []struct {
		name         string
		url          string
		edit         func(*target)
		status, code int
	}{
		{"nobody listens", closed, nil, 502, -31502},
		{"an address that is a name", closed, func(to *target) { to.dst = "localhost:80" }, 502, -31502},
		{"closes at once", g.rawUpstream(""), nil, 502, -31502},
		{"garbage", g.rawUpstream("\x16\x03\x01garbage\r\n\r\n"), nil, 502, -31502},
		{"closes in the middle of the headers", g.rawUpstream("HTTP/1.1 200 OK\r\nContent-Ty"), nil, 502, -31502},
		{"a huge header", g.rawUpstream("HTTP/1.1 200 OK\r\na: " + strings.Repeat("b", 70<<10) + "\r\n\r\n"), nil, 502, -31502},
		{"too many headers", g.rawUpstream("HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", 101) + "\r\n"), nil, 502, -31502},
		{"the call limit", silent.URL, limit("x-envoy-upstream-rq-timeout-ms"), 504, -31504},
		{"the limit until the answer starts", silent.URL, limit("x-envoy-upstream-rq-per-try-timeout-ms"), 504, -31504},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			to := toURL(test.url)
			if test.edit != nil {
				test.edit(&to)
			}
			g.eachError(t, g.route(to), test.status, test.code)
			to.id = `"a\"b"`
			got := g.do(t, g.client(true), "POST", "/servers/"+g.route(to)+"/mcp", `{}`)
			wantError(t, got, test.status, test.code, `"id":"a\"b",`)
		})
	}
}

// TestEnvoyPerTryLimitSparesAStartedAnswer holds the two limits apart: one runs
// until the answer's headers, the other until its end.
func TestEnvoyPerTryLimitSparesAStartedAnswer(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(600 * time.Millisecond): // beyond both limits
			_, _ = w.Write([]byte(`{"late":true}`))
		}
	})
	to := toURL(up.URL)
	to.request = map[string]string{"x-envoy-upstream-rq-per-try-timeout-ms": "200"}
	if got := g.do(t, g.client(true), "POST", "/servers/"+g.route(to)+"/mcp", `{}`); got.body != `{"late":true}` {
		t.Errorf("got %+v", got)
	}
	to.request = map[string]string{"x-envoy-upstream-rq-timeout-ms": "200"}
	request, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/servers/"+g.route(to)+"/rpc", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := g.client(true).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := answer.Body.Read(make([]byte, 1)); err == nil {
		t.Error("the call limit did not end an answer that had started")
	}
}

// TestEnvoyBodiesOverTheLimit holds that no upstream sees a body over MaxBody:
// Envoy cuts it before Check, or Check sees more than MaxBody bytes.
func TestEnvoyBodiesOverTheLimit(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, answerJSON(`{}`))
	to := toURL(up.URL)
	server := g.check(func(_ context.Context, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
		if len(in.GetAttributes().GetRequest().GetHttp().GetRawBody()) > xds.MaxBody {
			return deny(413, `{"ours":true}`), nil
		}
		return to.allow(), nil
	})
	whole := strings.Repeat("x", xds.MaxBody+1<<20)
	for _, http2 := range []bool{false, true} {
		for over, want := range map[int]int{0: 200, 1: 413, 2: 413, 4 << 10: 413, 16 << 10: 413, 64 << 10: 413, 1 << 20: 413} {
			_, before := up.seen()
			got := g.do(t, g.client(http2), "POST", "/servers/"+server+"/rpc", whole[:xds.MaxBody+over])
			_, after := up.seen()
			if got.status != want || (after > before) != (want == 200) {
				t.Errorf("%d bytes over, HTTP/2 %v: %d %q, upstream hit %d times", over, http2, got.status, got.body, after-before)
			}
			if got.status == 413 && got.body != `{"ours":true}` {
				wantError(t, got, 413, -31413, `"id":null,`)
			}
		}
	}
}

// TestEnvoyFailsClosedWithoutGuard holds that an answer which needs Guard does
// not pass when Guard fails.
func TestEnvoyFailsClosedWithoutGuard(t *testing.T) {
	g := startGateway(t, func(s *xds.State) { s.Times.Guard = 200 * time.Millisecond })
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: secret\n\n"))
	})
	tests := []struct {
		name  string
		guard func(procv3.ExternalProcessor_ProcessServer, *procv3.ProcessingRequest) error
	}{
		{"an error", func(procv3.ExternalProcessor_ProcessServer, *procv3.ProcessingRequest) error {
			return errors.New("out of order")
		}},
		{"silence", func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
			<-s.Context().Done()
			return nil
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			to := toURL(up.URL)
			to.origin = "https://app.example"
			server := g.route(to)
			g.guard(server, test.guard)
			got := g.do(t, g.client(true), "GET", "/servers/"+server+"/mcp", ``)
			if origin := got.header.Get("Access-Control-Allow-Origin"); origin != to.origin {
				t.Errorf("the browser is told the origin %q", origin)
			}
			g.eachError(t, server, 503, -31503)
		})
	}
}

// rawUpstream accepts connections, reads a little, writes text and closes.
func (g *gateway) rawUpstream(text string) string {
	g.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}
