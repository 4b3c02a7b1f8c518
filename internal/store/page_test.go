package store_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// A cursor comes back from a caller: whatever it is, it is a page or refused,
// and never looks like trouble with the database.
func FuzzCursor(f *testing.F) {
	s, err := store.Open(f.Context(), store.Config{Path: filepath.Join(f.TempDir(), "arbiter.db"), Key: testKey})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.CreateServer(f.Context(), store.Server{Name: name}, nil); err != nil {
			f.Fatal(err)
		}
	}
	_, next, err := s.Servers(f.Context(), store.Page{Limit: 1})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", next, "AA", "AAAA", "MQBh", "\x00", "===="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, after string) {
		list, _, err := s.Servers(t.Context(), store.Page{After: after})
		if err != nil && !errors.Is(err, store.ErrCursor) || err != nil && list != nil {
			t.Errorf("servers: %d, error %v", len(list), err)
		}
		tokens, _, err := s.Tokens(t.Context(), identity.ServerID{1}, store.Page{After: after})
		if err != nil && !errors.Is(err, store.ErrCursor) || tokens != nil {
			t.Errorf("tokens: %d, error %v", len(tokens), err)
		}
	})
}
