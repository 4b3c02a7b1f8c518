package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/mask"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

var (
	testMAC  = token.MACKey{1, 2, 3}
	testTime = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// fleet is a fake that runs everything at once, unless told otherwise.
type fleet struct {
	mu        sync.Mutex
	applied   func(ctx context.Context, revision int64) error
	confirmed func(ctx context.Context, change revocation.Change) (revocation.Result, error)
	revisions []int64
	changes   []revocation.Change
}

func (f *fleet) Applied(ctx context.Context, revision int64) error {
	f.mu.Lock()
	f.revisions = append(f.revisions, revision)
	applied := f.applied
	f.mu.Unlock()
	if applied == nil {
		return nil
	}
	return applied(ctx, revision)
}

func (f *fleet) Confirmed(ctx context.Context, change revocation.Change) (revocation.Result, error) {
	f.mu.Lock()
	f.changes = append(f.changes, change)
	confirmed := f.confirmed
	f.mu.Unlock()
	if confirmed == nil {
		return revocation.Result{Replicas: 2, Confirmed: 2, StreamsEnded: 7, Took: 12 * time.Millisecond}, nil
	}
	return confirmed(ctx, change)
}

// fixture is an API over a real store, with a log that can be read.
type fixture struct {
	t        testing.TB
	handler  http.Handler
	store    *store.Store
	policies *policy.Keeper
	path     string
	fleet    *fleet
	log      *bytes.Buffer
	status   func(context.Context) (api.Status, error)
	doc      *document
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, fleet: &fleet{}, log: &bytes.Buffer{}, path: filepath.Join(t.TempDir(), "arbiter.db")}
	opened, err := store.Open(t.Context(), store.Config{Path: f.path, Key: [32]byte{9}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	f.store = opened
	f.status = func(context.Context) (api.Status, error) { return goodStatus(), nil }
	f.serve(nil)
	f.doc = readDocument(t, f.handler)
	return f
}

// serve makes the handler, with policies from a source.
func (f *fixture) serve(from policy.Source) {
	f.t.Helper()
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	f.policies, err = policy.New(f.t.Context(), policy.Config{
		Store: f.store, Source: from, Registry: prometheus.NewRegistry(), Log: log, Now: func() time.Time { return testTime },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.handler, err = api.New(api.Config{
		Store: f.store, Fleet: f.fleet, Policies: f.policies, TokenMAC: testMAC,
		Status:    func(ctx context.Context) (api.Status, error) { return f.status(ctx) },
		Log:       log,
		Now:       func() time.Time { return testTime },
		ApplyWait: 20 * time.Millisecond, RevokeWait: 20 * time.Millisecond,
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func goodStatus() api.Status {
	return api.Status{
		Version: "v1", Clock: testTime, BaseURL: "https://localhost:8443", Listeners: []string{"127.0.0.1:8443"},
		Database: api.DatabaseStatus{Path: "arbiter.db", ID: "d", Revision: 1},
		Envoy:    api.EnvoyStatus{Version: "1.40.0", Connected: 1, Ready: true, AppliedRevision: 1},
		Replicas: []api.ReplicaStatus{
			{Name: "one", Connected: true, AppliedRevision: 1 << 40, LeaseUntil: testTime},
			{Name: "two", Connected: true, LastError: "refused"},
		},
		Certificates: []api.CertificateStatus{{Name: "server", NotBefore: testTime, NotAfter: testTime}},
		Keys:         api.KeyStatus{Sealing: true, TokenMAC: true, Sessions: 1},
	}
}

// answer is what came back; every one was held against openapi.yaml.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

func (f *fixture) do(method, path, body string) answer {
	f.t.Helper()
	req := httptest.NewRequestWithContext(api.WithCaller(f.t.Context(), "admin socket uid 7"), method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return f.send(req)
}

func (f *fixture) send(req *http.Request) answer {
	f.t.Helper()
	rec := httptest.NewRecorder()
	f.handler.ServeHTTP(rec, req)
	got := answer{f.t, rec.Code, rec.Result().Header, rec.Body.Bytes()}
	if got.header.Get("X-Content-Type-Options") != "nosniff" {
		f.t.Errorf("%s %s: the answer is not nosniff", req.Method, req.URL)
	}
	for name := range got.header {
		if strings.HasPrefix(name, "Access-Control-") {
			f.t.Errorf("%s %s: the answer has %s", req.Method, req.URL, name)
		}
	}
	f.doc.check(f.t, req, got)
	return got
}

// want fails unless the status is the wanted one, and decodes the body.
func (a answer) want(status int, into any) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			a.t.Fatalf("decoding %s: %v", a.body, err)
		}
	}
	return a
}

// wantProblem fails unless the answer is a problem with that text in it.
func (a answer) wantProblem(status int, text string) api.Problem {
	a.t.Helper()
	var p api.Problem
	a.want(status, &p)
	if media := a.header.Get("Content-Type"); media != "application/problem+json" {
		a.t.Errorf("content type %q", media)
	}
	if !strings.Contains(string(a.body), text) {
		a.t.Errorf("problem %s does not say %q", a.body, text)
	}
	return p
}

const plainServer = `{"name":"demo","mcp":"https://mcp.example.com/mcp"}`

func (f *fixture) create(body string) api.ChangedServer {
	f.t.Helper()
	var out api.ChangedServer
	f.do("POST", "/api/v1/servers", body).want(http.StatusCreated, &out)
	return out
}

func TestNewRejectsMissingParts(t *testing.T) {
	f := newFixture(t)
	status := func(context.Context) (api.Status, error) { return api.Status{}, nil }
	whole := api.Config{Store: f.store, Fleet: f.fleet, Policies: f.policies, Status: status, Log: slog.Default(), TokenMAC: testMAC}
	for _, test := range []struct {
		name string
		edit func(*api.Config)
		want bool
	}{
		{"whole", func(*api.Config) {}, true},
		{"no store", func(c *api.Config) { c.Store = nil }, false},
		{"no fleet", func(c *api.Config) { c.Fleet = nil }, false},
		{"no policies", func(c *api.Config) { c.Policies = nil }, false},
		{"no status", func(c *api.Config) { c.Status = nil }, false},
		{"no log", func(c *api.Config) { c.Log = nil }, false},
		{"no token key", func(c *api.Config) { c.TokenMAC = token.MACKey{} }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := whole
			test.edit(&config)
			if _, err := api.New(config); (err == nil) != test.want {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	f := newFixture(t)
	var got api.Status
	f.do("GET", "/api/v1/status", "").want(http.StatusOK, &got)
	if got.Version != "v1" || len(got.Replicas) != 2 {
		t.Errorf("status %+v", got)
	}
	f.status = func(context.Context) (api.Status, error) { return api.Status{}, errors.New("canary-cause") }
	answer := f.do("GET", "/api/v1/status", "")
	answer.wantProblem(http.StatusInternalServerError, "the gateway failed")
	if strings.Contains(string(answer.body), "canary-cause") || !strings.Contains(f.log.String(), "canary-cause") {
		t.Error("the cause belongs into the log, not into the answer")
	}
}

func TestDecisions(t *testing.T) {
	f := newFixture(t)
	record := `{"decision_id":"r-1","outcome":"deny","reason":"scope_missing"}`
	err := f.store.AddDecisions(t.Context(), []store.Decision{{ID: "r-1", Time: testTime, JSON: []byte(record)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.do("GET", "/api/v1/decisions/r-1", "").want(http.StatusOK, nil); string(got.body) != record {
		t.Errorf("record %s", got.body)
	}
	const masked = `[{"password":"masked"}]`
	srv, err := f.store.CreateServer(t.Context(), store.Server{Name: "recording", RecordArguments: &store.RecordArguments{Keep: time.Hour}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	recorded := store.Decision{ID: "r-3", Server: srv.ID.String(), Time: testTime, JSON: []byte(`{"decision_id":"r-3"}`), Arguments: []byte(masked), Mask: mask.ID(nil)}
	if err := f.store.AddDecisions(t.Context(), []store.Decision{recorded}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"r-3": false, "r-3?arguments=false": false, "r-3?arguments=true": true, "r-1?arguments=true": false} {
		if got := f.do("GET", "/api/v1/decisions/"+path, "").want(http.StatusOK, nil); strings.Contains(string(got.body), `,"arguments":`+masked+`,"arguments_until":"`) != want {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	f.do("GET", "/api/v1/decisions/r-3?arguments=1", "").wantProblem(http.StatusBadRequest, "arguments")
	for _, id := range []string{"r-2", "%00", "%1b", strings.Repeat("x", 101)} {
		f.do("GET", "/api/v1/decisions/"+id, "").wantProblem(http.StatusNotFound, "arbiter-request-id")
	}
}

// logged fails unless some line of the log has all parts.
func (f *fixture) logged(parts ...string) {
	f.t.Helper()
	for line := range strings.Lines(f.log.String()) {
		missing := false
		for _, part := range parts {
			missing = missing || !strings.Contains(line, part)
		}
		if !missing {
			return
		}
	}
	f.t.Errorf("no line of the log has %q:\n%s", parts, f.log)
}
