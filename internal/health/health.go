// Package health serves /livez, /readyz and /metrics of a role, and nothing
// else: it may be reachable from outside the machine.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const readyWithin = 2 * time.Second

// Routes serves the three. problems lists why the role cannot do its work, one
// sentence each, without secrets; /readyz is 503 while there is one.
func Routes(problems func(ctx context.Context) []string, registry prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok") // the status is out: a client that went away is no fault of ours
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
		defer cancel()
		found := append([]string{}, problems(ctx)...)
		w.Header().Set("content-type", "application/json")
		if len(found) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"ready": len(found) == 0, "problems": found})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// Serve serves until ctx ends. conn, which may be nil, adds to a request's
// context what is known of its connection.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, conn func(context.Context, net.Conn) context.Context) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, ConnContext: conn,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", listener.Addr(), err)
	}
	return nil
}
