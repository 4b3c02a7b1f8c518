package health_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/internal/health"
)

// oneConn is a listener with one connection, in memory.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// A delete may wait for two leases. A time-out of the server that ended the
// request would make it answer while a replica can still accept, or not at all.
func TestServeLetsARequestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		listener := &oneConn{make(chan net.Conn, 1), make(chan struct{})}
		here, there := net.Pipe()
		listener.conn <- there
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(3 * time.Minute):
				_, _ = io.WriteString(w, "waited")
			case <-r.Context().Done():
				_, _ = io.WriteString(w, "ended early")
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- health.Serve(ctx, listener, handler, nil) }()
		if _, err := io.WriteString(here, "DELETE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(here), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "waited" {
			t.Errorf("answered %q, %v", body, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestRoutes(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_total", Help: "x"})
	registry.MustRegister(counter)
	var problems []string
	routes := health.Routes(func(context.Context) []string { return problems }, registry)
	for _, row := range []struct {
		path     string
		problems []string
		status   int
		body     string
	}{
		{"/livez", []string{"x"}, 200, "ok"},
		{"/readyz", nil, 200, `{"problems":[],"ready":true}`},
		{"/readyz", []string{"no Envoy"}, 503, `{"problems":["no Envoy"],"ready":false}`},
		{"/metrics", nil, 200, "test_total 0"},
		{"/api/v1/servers", nil, 404, ""},
	} {
		problems = row.problems
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, row.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		if w.Code != row.status || !strings.Contains(w.Body.String(), row.body) {
			t.Errorf("%s: %d %s", row.path, w.Code, w.Body.String())
		}
	}
}
