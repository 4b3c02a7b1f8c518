package policy_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Policies that differ.
const (
	allowAll = "package policy\n\nallow := true\n"
	allowOne = "package policy\n\nallow if input.call.tool == \"one\"\n"
	broken   = "package policy\n\nallow if {\n\tinput.cal.tool == \"one\"\n}\n"
	untrue   = "package policy_test\n\nimport data.policy\n\ntest_denies if not policy.allow\n"
)

func bundleOf(text string) policies.Bundle {
	return policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(text)}}
}

// printed is a log that tests read.
type printed struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *printed) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(line)
}

// lines are those that hold all of the texts.
func (p *printed) lines(texts ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := 0
	for line := range strings.Lines(p.out.String()) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			found++
		}
	}
	return found
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

func (f *fixture) slog() *slog.Logger { return slog.New(slog.NewTextHandler(f.log, nil)) }

func openStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "arbiter.db"), Key: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fixture is a running Keeper.
type fixture struct {
	*policy.Keeper
	t        *testing.T
	store    *store.Store
	log      *printed
	registry *prometheus.Registry
	stop     func()
}

// try makes a Keeper that does not run yet.
func try(t *testing.T, s *store.Store, source policy.Source) (*fixture, error) {
	t.Helper()
	f := &fixture{t: t, store: s, log: &printed{}, registry: prometheus.NewRegistry()}
	var err error
	f.Keeper, err = policy.New(t.Context(), policy.Config{
		Store: s, Source: source, Registry: f.registry, Log: slog.New(slog.NewTextHandler(f.log, nil)),
	})
	return f, err
}

func run(t *testing.T, s *store.Store, source policy.Source) *fixture {
	t.Helper()
	f, err := try(t, s, source)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) eventually(what string, is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("never happened: %s; refused %+v, log:\n%s", what, f.Refused(), f.log)
		}
	}
}

// decides waits until the stored policy is this one.
func (f *fixture) decides(text string) {
	f.t.Helper()
	want := bundleOf(text).Revision()
	f.eventually(want+" decides", func() bool {
		stored, err := f.store.Policy(f.t.Context())
		return err == nil && stored.Revision == want && f.Deciding().Revision == want
	})
}

// refused waits for a fault with this text.
func (f *fixture) refused(text string) {
	f.t.Helper()
	f.eventually("refused: "+text, func() bool {
		r := f.Refused()
		return r != nil && strings.Contains(r.Faults[0].String(), text)
	})
}

func (f *fixture) mended() {
	f.t.Helper()
	f.eventually("nothing is refused", func() bool { return f.Refused() == nil })
}

func (f *fixture) metric(name string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name && len(family.GetMetric()) == 1 {
			return family.GetMetric()[0].GetCounter().GetValue() + family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	f.t.Fatalf("there is no single %s", name)
	return 0
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func directory(t *testing.T, dir string) *policy.Directory {
	t.Helper()
	d, err := policy.NewDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
