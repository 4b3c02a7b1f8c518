package policy

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

// offered is a source that offers what the test says.
type offered struct{ text string }

func (*offered) Origin() string       { return "somewhere" }
func (*offered) Wait(context.Context) {}
func (o *offered) Read(context.Context) (Offer, error) {
	return Offer{Bundle: policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(o.text)}}}, nil
}

// A policy that takes rights away, saved while the machine was busy, holds once
// it is not, though nobody saves it again.
func TestWhatIsLateIsJudgedAgain(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "arbiter.db"), Key: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Unix(1_800_000_000, 0)
	source := &offered{"package policy\n\nallow := true\n"}
	registry := prometheus.NewRegistry()
	k, err := New(t.Context(), Config{
		Store: s, Source: source, Registry: registry, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	before := k.Deciding().Revision
	source.text = "package policy\n\nallow if input.call.tool == \"one\"\n"
	refused := func(when string) {
		t.Helper()
		if err := k.read(t.Context()); err == nil || k.Refused() == nil || k.Deciding().Revision != before {
			t.Errorf("%s: %v, refused %v", when, err, k.Refused())
		}
	}
	k.cfg.CompileMost = time.Nanosecond
	refused("busy")
	now = now.Add(leastAgain)
	refused("still busy")
	k.cfg.CompileMost = time.Hour
	now = now.Add(leastAgain - 1)
	refused("the pause is not over")
	now = now.Add(1)
	if err := k.read(t.Context()); err != nil || k.Refused() != nil || k.Deciding().Revision == before {
		t.Errorf("not busy any more: %v, refused %v, deciding %+v", err, k.Refused(), k.Deciding())
	}

	source.text = "package policy\n\nallow if input.cal\n"
	before = k.Deciding().Revision
	refused("broken")
	at := k.verdict
	now = now.Add(time.Hour)
	if refused("still broken"); k.verdict != at {
		t.Error("what is broken was judged again, though nothing has changed")
	}
}

func TestOnlyTimeMakesLate(t *testing.T) {
	bad := &policies.BundleError{Faults: []policies.Fault{{File: "a.rego", Message: "m"}}}
	for err, want := range map[error]bool{bad: false, &policies.LateError{Bundle: bad}: true, errors.New("other"): false} {
		if got := faultsIn(err); got.Late != want || otherThan(err) != nil && len(got.Faults) > 0 {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
