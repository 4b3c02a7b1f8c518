package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

var cliTime = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// allApplied is a fleet that runs everything at once.
type allApplied struct{ err error }

func (f *allApplied) Applied(context.Context, int64) error { return f.err }

func (*allApplied) Confirmed(context.Context, revocation.Change) (revocation.Result, error) {
	return revocation.Result{Replicas: 2, Confirmed: 1, Missing: []string{"b"}, StreamsEnded: 100, Took: 12 * time.Millisecond}, nil
}

// shell runs command lines against an API on a socket in a data directory.
type shell struct {
	t      *testing.T
	dir    string
	store  *store.Store
	fleet  *allApplied
	status api.Status
	log    *bytes.Buffer
	envoy  func() (string, string, error)

	source   policy.Source // nil: policies come over the API
	policies *policy.Keeper
}

// newShell makes the data directory; serve starts the API.
func newShell(t *testing.T) *shell {
	t.Helper()
	dir, err := os.MkdirTemp("", "arb") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("ARBITER_DATA", dir)
	return &shell{
		t: t, dir: dir, fleet: &allApplied{}, log: &bytes.Buffer{},
		envoy: func() (string, string, error) { return "/opt/envoy", "1.40.0", nil },
	}
}

func (s *shell) serve() *shell {
	s.t.Helper()
	opened, err := store.Open(s.t.Context(), store.Config{Path: filepath.Join(s.dir, databaseFile), Key: [32]byte{1}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.store = opened
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.policies, err = policy.New(s.t.Context(), policy.Config{
		Store: opened, Source: s.source, Registry: prometheus.NewRegistry(), Log: log, Now: func() time.Time { return cliTime },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	handler, err := api.New(api.Config{
		Store: opened, Fleet: s.fleet, Policies: s.policies, TokenMAC: token.MACKey{1},
		Status: func(context.Context) (api.Status, error) { return s.status, nil },
		Log:    log, Now: func() time.Time { return cliTime },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(s.t.Context(), "unix", filepath.Join(s.dir, adminSocket))
	if err != nil {
		s.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(api.WithCaller(r.Context(), "test")))
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.t.Cleanup(func() {
		if err := errors.Join(server.Close(), opened.Close()); err != nil {
			s.t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	})
	return s
}

// outcome is what one command line did.
type outcome struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

func (s *shell) run(args ...string) outcome { return s.runWith("", args...) }

func (s *shell) runWith(stdin string, args ...string) outcome {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	p := &program{
		ctx: s.t.Context(), stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr,
		now: func() time.Time { return cliTime }, envoy: s.envoy,
	}
	return outcome{s.t, p.run(args), stdout.String(), stderr.String()}
}

// ok fails unless the command went well; all parts must be in its output.
func (o outcome) ok(parts ...string) outcome {
	o.t.Helper()
	if o.code != 0 {
		o.t.Fatalf("exit code %d: %s", o.code, o.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(o.stdout, part) {
			o.t.Errorf("output has no %q:\n%s", part, o.stdout)
		}
	}
	return o
}

// fails wants exit code 1, nothing on stdout, and one line on stderr that says part.
func (o outcome) fails(part string) {
	o.t.Helper()
	if o.code != 1 || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 || !strings.HasPrefix(o.stderr, "arbiter: ") || !strings.Contains(o.stderr, part) {
		o.t.Errorf("exit code %d, stdout %q, stderr %q; want one line with %q", o.code, o.stdout, o.stderr, part)
	}
}

// printed decodes what --json printed.
func printed[T any](o outcome) (out T) {
	o.t.Helper()
	if err := json.Unmarshal([]byte(o.ok().stdout), &out); err != nil {
		o.t.Fatalf("%s: %v", o.stdout, err)
	}
	return out
}

func (s *shell) write(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}
