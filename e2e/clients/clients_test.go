//go:build e2e

package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/e2e/clients"
	"github.com/arbiter-gateway/arbiter/internal/demo"
	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// These tests check the clients themselves, without a gateway: against the demo
// server, behind a stand-in for what a gateway adds.

const (
	header = "Bearer not-a-real-one"
	reason = "the tool forbidden is not for you"
)

// standIn passes requests on to the demo server, asks for the header, denies the
// tool "forbidden", and, unless modern, answers modern requests as a server
// without that era does. It notes each request.
type standIn struct {
	http.Handler
	modern bool

	mu   sync.Mutex // guards seen
	seen []string   // "POST initialize", "GET", "DELETE"
}

func newStandIn(t *testing.T, modern bool) *standIn {
	t.Helper()
	server, err := demo.New(demo.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("demo server: %v", err)
		}
	})
	return &standIn{modern: modern, Handler: &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: server.Addr()})
			r.Out.Header.Del("Authorization")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if len(body) > 0 && json.Unmarshal(body, &message) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.note(r.Method + " " + message.Method)
	switch {
	case r.Header.Get("Authorization") != header:
		w.WriteHeader(http.StatusUnauthorized)
	case !s.modern && r.Header.Get("MCP-Protocol-Version") >= clients.ModernRevision:
		answer(w, http.StatusBadRequest, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"unsupported protocol version",`+
			`"data":{"supported":["2025-11-25","2025-06-18"],"requested":"2026-07-28"}}}`, message.ID)
	case message.Params.Name == "forbidden":
		answer(w, http.StatusOK, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","isError":true,`+
			`"content":[{"type":"text","text":"`+reason+`"}]}}`, message.ID)
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

func answer(w http.ResponseWriter, status int, format string, id []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, format, id)
}

func (s *standIn) note(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, request)
}

func (s *standIn) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, seen := range s.seen {
		if seen == request {
			n++
		}
	}
	return n
}

// run starts client against the stand-in, over TLS, through a relay to cut.
func run(t *testing.T, client clients.Client, s *standIn, env clients.Env) []clients.Step {
	t.Helper()
	authority := testfleet.NewAuthority(t, "e2e clients")
	leaf := authority.Leaf(t, "127.0.0.1")
	origin, err := url.Parse(testfleet.NewHTTP(t, s, &leaf))
	if err != nil {
		t.Fatal(err)
	}
	relay := testfleet.NewRelay(t, origin.Host)
	env.URL = "https://" + relay.Addr() + "/mcp"
	env.CA = authority.File(t)
	env.HeaderFile = filepath.Join(t.TempDir(), "header")
	if err := os.WriteFile(env.HeaderFile, []byte("Authorization: "+header+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if env.Cut != nil {
		env.Cut = func(context.Context) error {
			if relay.Cut() == 0 {
				return errors.New("there was no connection to cut")
			}
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	steps, err := client.Run(ctx, env)
	for _, step := range steps {
		t.Logf("%-14s %t %s", step.Name, step.OK, step.Detail)
	}
	if err != nil {
		t.Error(err)
	}
	return steps
}

func detail(steps []clients.Step, name string) string {
	for _, step := range steps {
		if step.Name == name {
			return step.Detail
		}
	}
	return ""
}

func all(t *testing.T) []clients.Client {
	t.Helper()
	list, err := clients.All(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func yes(context.Context) error { return nil }

func TestEverySDKWorksInASession(t *testing.T) {
	for _, client := range all(t) {
		t.Run(client.Name, func(t *testing.T) {
			s := newStandIn(t, false)
			steps := run(t, client, s, clients.Env{DeniedTool: "forbidden", Cut: yes})
			if got := detail(steps, "connect"); got != clients.LegacyRevision {
				t.Errorf("revision %q, want %q", got, clients.LegacyRevision)
			}
			if got := detail(steps, "denied"); got != reason {
				t.Errorf("denied with %q, want %q", got, reason)
			}
			if got := s.count("GET "); got < 2 {
				t.Errorf("%d GET streams, want one before and one after the cut", got)
			}
			if got := s.count("DELETE "); got != 1 {
				t.Errorf("%d DELETE, want 1", got)
			}
		})
	}
}

func TestProbingSDKsFallBackToTheHandshake(t *testing.T) {
	for _, client := range all(t) {
		t.Run(client.Name, func(t *testing.T) {
			s := newStandIn(t, false)
			steps := run(t, client, s, clients.Env{Era: clients.Auto})
			if got := detail(steps, "connect"); got != clients.LegacyRevision {
				t.Errorf("revision %q, want %q", got, clients.LegacyRevision)
			}
			if probed := s.count("POST server/discover") > 0; probed != client.Modern {
				t.Errorf("probed: %t, want %t", probed, client.Modern)
			}
		})
	}
}

func TestModernSDKsUseTheModernEraWhereItIsAllowed(t *testing.T) {
	for _, client := range all(t) {
		t.Run(client.Name, func(t *testing.T) {
			s := newStandIn(t, true)
			steps := run(t, client, s, clients.Env{Era: clients.Auto, DeniedTool: "forbidden"})
			want := clients.LegacyRevision
			if client.Modern {
				want = clients.ModernRevision
			}
			if got := detail(steps, "connect"); got != want {
				t.Errorf("revision %q, want %q", got, want)
			}
			if handshakes := s.count("POST initialize"); client.Modern && handshakes != 0 {
				t.Errorf("%d handshakes, want none", handshakes)
			}
		})
	}
}

func TestAClientThatCannotConnectSaysSo(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil { // nobody there
		t.Fatal(err)
	}
	for _, client := range all(t) {
		t.Run(client.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			steps, err := client.Run(ctx, clients.Env{URL: "http://" + listener.Addr().String() + "/mcp"})
			if !errors.Is(err, clients.ErrSteps) || len(steps) != 1 || steps[0].OK {
				t.Errorf("steps %+v, error %v; want connect alone, and failed", steps, err)
			}
		})
	}
}
