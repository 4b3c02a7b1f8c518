package storetest

import (
	"fmt"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

func accepted(t *testing.T, s *store.Store, revision string, version int64) store.Policy {
	t.Helper()
	got, err := s.AddPolicy(t.Context(), store.Policy{Revision: revision, Version: version, Files: map[string][]byte{"policy.rego": []byte(revision)}})
	wantErr(t, err, nil)
	return got
}

func testPolicies(t *testing.T, engine New) {
	t.Run("come back whole", func(t *testing.T) {
		now := newClock()
		s := fresh(t, engine, store.Config{Now: now.now})
		_, err := s.Policy(t.Context())
		wantErr(t, err, store.ErrNotFound)
		created(t, s, "a")
		want := store.Policy{
			Revision: "r1", Origin: "here ☂ 'x'", Version: 3,
			Files: map[string][]byte{"policy.rego": []byte("package policy\n"), "x/data.json": {0xff, 0, '"'}},
		}
		got, err := s.AddPolicy(t.Context(), want)
		wantErr(t, err, nil)
		want.Settings, want.AcceptedAt = 2, now.now()
		wantEqual(t, "accepted", got, want)
		read, err := s.Policy(t.Context())
		wantErr(t, err, nil)
		wantEqual(t, "read", read, want)
		changes, err := s.ChangesSince(t.Context(), 1, 0)
		wantErr(t, err, nil)
		wantEqual(t, "changes", changes, []store.Change{{Revision: 2, Kind: store.ChangePolicy}})
	})
	t.Run("the last one decides", func(t *testing.T) {
		s := fresh(t, engine, store.Config{})
		first := accepted(t, s, "r1", 0)
		accepted(t, s, "r2", 0)
		again := accepted(t, s, "r1", 0)
		got, err := s.Policy(t.Context())
		wantErr(t, err, nil)
		wantEqual(t, "deciding", got, again)
		byRevision, err := s.PolicyByRevision(t.Context(), "r1")
		wantErr(t, err, nil)
		wantEqual(t, "by revision", byRevision, again)
		if first.Settings >= again.Settings {
			t.Errorf("accepted at %d, and again at %d", first.Settings, again.Settings)
		}
	})
	t.Run("old ones go", func(t *testing.T) { testOldPolicies(t, engine) })
	t.Run("never an older signed one", func(t *testing.T) { testDowngrade(t, engine) })
}

func testOldPolicies(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	accepted(t, s, "signed", 7)
	for i := range store.KeptPolicies + 3 {
		accepted(t, s, fmt.Sprint("r", i), 0)
	}
	for _, tt := range []struct {
		revision string
		want     error
	}{
		{"r0", store.ErrNotFound},
		{"r2", store.ErrNotFound},
		{"r3", nil},
		{"signed", nil}, // it alone knows how far signed ones are
	} {
		_, err := s.PolicyByRevision(t.Context(), tt.revision)
		wantErr(t, err, tt.want)
	}
	_, err := s.AddPolicy(t.Context(), store.Policy{Revision: "old", Version: 6})
	wantErr(t, err, store.ErrDowngrade)
}

func testDowngrade(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	accepted(t, s, "v5", 5)
	accepted(t, s, "unsigned", 0)
	for _, tt := range []struct {
		revision string
		version  int64
		want     error
	}{
		{"v4", 4, store.ErrDowngrade},
		{"another v5", 5, store.ErrDowngrade},
		{"v5", 5, nil},
		{"v5", 4, nil}, // the same source
		{"v6", 6, nil},
		{"v5", 5, store.ErrDowngrade},
		{"unsigned", 0, nil},
	} {
		before := revision(t, s)
		_, err := s.AddPolicy(t.Context(), store.Policy{Revision: tt.revision, Version: tt.version})
		wantErr(t, err, tt.want)
		if err != nil {
			wantEqual(t, "revision after a refusal", revision(t, s), before)
		}
	}
}
