package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// listing are tools whose definitions differ by one byte.
func listing(of map[string]byte) map[string]store.ToolHash {
	out := map[string]store.ToolHash{}
	for name, b := range of {
		out[name] = store.ToolHash{b}
	}
	return out
}

func TestToolsAreRememberedAsTheyWereFirstListed(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
	defer closed(t, s)
	srv := created(t, s, "one")
	for _, step := range []struct {
		name         string
		listed       map[string]byte
		changed, new []string
		revised      bool
	}{
		{"the first list", map[string]byte{"add": 1, "echo": 1}, nil, nil, true},
		{"the same again", map[string]byte{"add": 1, "echo": 1}, nil, nil, false},
		{"a page of it", map[string]byte{"echo": 1}, nil, nil, false},
		{"another tool", map[string]byte{"sub": 1}, nil, nil, true},
		{"a changed one", map[string]byte{"echo": 2, "add": 1}, []string{"echo"}, []string{"echo"}, true},
		{"still changed", map[string]byte{"echo": 2}, []string{"echo"}, nil, false},
		{"changed again", map[string]byte{"echo": 3}, []string{"echo"}, []string{"echo"}, true},
		{"not listed", map[string]byte{"add": 1}, nil, nil, false},
		{"as it was", map[string]byte{"echo": 1}, nil, nil, true},
		{"nothing", nil, nil, nil, false},
	} {
		before := revision(t, s)
		got, err := s.SeeTools(t.Context(), srv.ID, listing(step.listed))
		if err != nil || !slices.Equal(got.Changed, step.changed) || !slices.Equal(got.New, step.new) {
			t.Errorf("%s: %+v, %v", step.name, got, err)
		}
		if revised := revision(t, s) != before; revised != step.revised {
			t.Errorf("%s: a revision is %v", step.name, revised)
		}
	}
}

func TestToolsAreApprovedAsLastListed(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
	defer closed(t, s)
	srv, other := created(t, s, "one"), created(t, s, "two")
	for _, list := range []map[string]byte{{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3}} {
		for _, id := range []identity.ServerID{srv.ID, other.ID} {
			if _, err := s.SeeTools(t.Context(), id, listing(list)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, err := s.ApproveTools(t.Context(), srv.ID, []string{"a", "nobody"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("approving a tool that is not there: %v", err)
	}
	wantWaiting(t, s, srv.ID, "a", "b")
	n, _, err := s.ApproveTools(t.Context(), srv.ID, []string{"a"})
	if err != nil || n != 1 {
		t.Errorf("approved %d, %v", n, err)
	}
	wantWaiting(t, s, srv.ID, "b")
	if seen, err := s.SeeTools(t.Context(), srv.ID, listing(map[string]byte{"a": 2})); err != nil || !slices.Equal(seen.Changed, []string{"a"}) {
		t.Errorf("what was listed before the approval is %+v, %v", seen, err)
	}
	if n, _, err = s.ApproveTools(t.Context(), srv.ID, nil); err != nil || n != 2 {
		t.Errorf("approved %d, %v", n, err)
	}
	wantWaiting(t, s, srv.ID)
	wantWaiting(t, s, other.ID, "a", "b")
	if n, err := s.WaitingTools(t.Context()); err != nil || n != 2 {
		t.Errorf("%d wait in all, %v", n, err)
	}
}

func wantWaiting(t *testing.T, s *store.Store, id identity.ServerID, want ...string) {
	t.Helper()
	if got, err := s.ChangedTools(t.Context(), id); err != nil || !slices.Equal(got, want) {
		t.Errorf("waiting: %q, %v, want %q", got, err, want)
	}
}

// TestToolsBeyondTheMostCountAsChanged: a server that lists tools without end
// fills no database, and gets none of them approved by it.
func TestToolsBeyondTheMostCountAsChanged(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
	defer closed(t, s)
	srv := created(t, s, "one")
	list := map[string]store.ToolHash{}
	for i := range store.KeptTools + 3 {
		list[fmt.Sprintf("tool-%05d", i)] = store.ToolHash{1}
	}
	for range 2 {
		got, err := s.SeeTools(t.Context(), srv.ID, list)
		want := []string{"tool-02000", "tool-02001", "tool-02002"}
		if err != nil || !slices.Equal(got.Changed, want) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if kept, err := s.Tools(t.Context(), srv.ID); err != nil || len(kept) != store.KeptTools {
		t.Errorf("%d are kept, %v", len(kept), err)
	}
}

func TestToolsGoWithTheirServer(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
	defer closed(t, s)
	srv := created(t, s, "one")
	if _, err := s.SeeTools(t.Context(), srv.ID, listing(map[string]byte{"a": 1})); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteServer(t.Context(), srv.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SeeTools(t.Context(), srv.ID, listing(map[string]byte{"a": 2})); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.Tools(t.Context(), srv.ID); err != nil || len(kept) != 0 {
		t.Errorf("a deleted server remembers %v, %v", kept, err)
	}
}

func revision(t *testing.T, s *store.Store) int64 {
	t.Helper()
	n, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
