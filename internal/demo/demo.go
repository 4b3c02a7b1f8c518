// Package demo is a small real MCP server, shipped inside the binary so that
// `arbiter up` has something to stand in front of, and used by tests.
//
// Place in the flow: it is an upstream. It speaks streamable HTTP on /mcp, with
// sessions for the revisions up to 2025-11-25 and without for 2026-07-28, and
// plain JSON-RPC on /rpc. Whatever it needs to be guarded by is in front of it:
// it binds a loopback address, asks for no credential, holds no secret and
// trusts nobody; who reaches it can at most make it count.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// modernRevision is the first MCP revision without a handshake; dates compare as text.
const modernRevision = "2026-07-28"

const (
	idleSession   = 12 * time.Hour // a session without a POST for this long is forgotten
	shutdownGrace = time.Second    // what running answers get when Run ends
	maxBody       = 4 << 20        // bytes of one request, on both paths
)

// Config says where the demo server listens.
type Config struct {
	// Listen is a loopback "ip:port"; port 0 takes a free one. Default "127.0.0.1:0".
	Listen string
	// Log hears of faults of the HTTP server. Default: discards.
	Log *slog.Logger
}

// Server is a demo MCP server that holds its port from New on.
type Server struct {
	listener net.Listener
	http     *http.Server
	mcp      *mcp.Server

	done  chan struct{}  // closed when Run ends: clocks stop
	ticks sync.WaitGroup // running clocks
}

// New checks c and takes the port. A host that is not a loopback address is refused.
func New(c Config) (*Server, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("demo server: address %q: %w", c.Listen, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("demo server: address %q is not a loopback address", c.Listen)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("demo server: %w", err)
	}
	s := &Server{listener: listener, done: make(chan struct{})}
	s.mcp = s.newMCP()
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Addr is the "ip:port" that New took.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx ends, then closes every session and stream, and comes
// back when its goroutines are gone. It is called once. The error is nil when
// ctx ended it.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		s.stop(ctx)
		return fmt.Errorf("demo server: %w", err)
	case <-ctx.Done():
		s.stop(ctx)
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("demo server: %w", err)
		}
		return nil
	}
}

func (s *Server) stop(ctx context.Context) {
	close(s.done)
	s.ticks.Wait()
	for session := range s.mcp.Sessions() {
		_ = session.Close()
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if s.http.Shutdown(grace) != nil {
		_ = s.http.Close()
	}
}

func (s *Server) routes() http.Handler {
	server := func(*http.Request) *mcp.Server { return s.mcp }
	sessions := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		EventStore:          mcp.NewMemoryEventStore(nil), // a cut stream can be resumed
		SessionTimeout:      idleSession,
		MaxRequestBodyBytes: maxBody,
	})
	stateless := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Stateless:                    true,
		PropagateRequestCancellation: true,
		MaxRequestBodyBytes:          maxBody,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if modern(r.Header) {
			stateless.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /rpc", s.serveRPC)
	return mux
}

func modern(h http.Header) bool {
	return strings.TrimSpace(h.Get("MCP-Protocol-Version")) >= modernRevision
}
