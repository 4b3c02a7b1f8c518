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
func listing(of map[string]byte) map[string]store.ToolDefinition {
	out := map[string]store.ToolDefinition{}
	for name, b := range of {
		out[name] = store.ToolDefinition{Hash: store.ToolHash{b}, Text: fmt.Sprintf(`{"v":%d}`, b)}
	}
	return out
}

func TestToolsAreRememberedAsTheyWereFirstListed(t *testing.T) {
	for _, change := range []string{store.ToolChangesAlarm, store.ToolChangesDeny} {
		t.Run(change, func(t *testing.T) { rememberTools(t, change) })
	}
}

func rememberTools(t *testing.T, change string) {
	s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
	defer closed(t, s)
	srv := created(t, s, "one")
	if _, err := s.UpdateServer(t.Context(), srv.ID, func(srv *store.Server) error {
		srv.ToolChanges = change
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name         string
		listed       map[string]byte
		changed, new []string
	}{
		{"the first list", map[string]byte{"add": 1, "echo": 1}, nil, nil},
		{"the same again", map[string]byte{"add": 1, "echo": 1}, nil, nil},
		{"a page of it", map[string]byte{"echo": 1}, nil, nil},
		{"another tool", map[string]byte{"sub": 1}, nil, nil},
		{"a changed one", map[string]byte{"echo": 2, "add": 1}, []string{"echo"}, []string{"echo"}},
		{"still changed", map[string]byte{"echo": 2}, []string{"echo"}, nil},
		{"changed again", map[string]byte{"echo": 3}, []string{"echo"}, nil},
		{"not listed", map[string]byte{"add": 1}, nil, nil},
		{"as it was", map[string]byte{"echo": 1}, []string{"echo"}, nil},
		{"another one too", map[string]byte{"add": 2}, []string{"add"}, []string{"add"}},
		{"nothing", nil, nil, nil},
	} {
		before := revision(t, s)
		got, err := s.SeeTools(t.Context(), srv.ID, listing(step.listed))
		if err != nil || !slices.Equal(got.Changed, step.changed) || !slices.Equal(got.New, step.new) {
			t.Errorf("%s: %+v, %v", step.name, got, err)
		}
		if revised := revision(t, s) != before; revised != (change == store.ToolChangesDeny && step.new != nil) {
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
	second, third := store.ToolHash{2}, store.ToolHash{3}
	for _, row := range []struct {
		name  string
		named map[string]*store.ToolHash
		want  error
	}{
		{"a tool that is not there", map[string]*store.ToolHash{"a": nil, "nobody": nil}, store.ErrNotFound},
		{"one that moved since", map[string]*store.ToolHash{"a": &second}, store.ErrToolMoved},
		{"one of two that moved since", map[string]*store.ToolHash{"b": &second, "a": &second}, store.ErrToolMoved},
	} {
		if _, _, err := s.ApproveTools(t.Context(), srv.ID, row.named); !errors.Is(err, row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
		wantWaiting(t, s, srv.ID, "a", "b")
	}
	n, _, err := s.ApproveTools(t.Context(), srv.ID, map[string]*store.ToolHash{"a": &third})
	if err != nil || n != 1 {
		t.Errorf("approved %d, %v", n, err)
	}
	wantWaiting(t, s, srv.ID, "b")
	kept, err := s.Tools(t.Context(), srv.ID)
	if err != nil || len(kept) != 2 || kept[0].Approved.Text != `{"v":3}` || kept[1].Approved.Text != `{"v":1}` || kept[1].Seen.Text != `{"v":2}` {
		t.Errorf("kept %+v, %v", kept, err)
	}
	if seen, err := s.SeeTools(t.Context(), srv.ID, listing(map[string]byte{"a": 2})); err != nil || !slices.Equal(seen.New, []string{"a"}) {
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

// TestToolsBeyondTheMost: a server that lists tools without end fills no
// database, and gets none of them approved by it; forgetting makes room.
func TestToolsBeyondTheMost(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
	defer closed(t, s)
	srv := created(t, s, "one")
	list := map[string]byte{}
	for i := range store.KeptTools + 3 {
		list[fmt.Sprintf("tool-%05d", i)] = 1
	}
	for range 2 {
		got, err := s.SeeTools(t.Context(), srv.ID, listing(list))
		want := []string{"tool-02000", "tool-02001", "tool-02002"}
		if err != nil || !slices.Equal(got.Beyond, want) || got.Changed != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if kept, err := s.Tools(t.Context(), srv.ID); err != nil || len(kept) != store.KeptTools {
		t.Errorf("%d are kept, %v", len(kept), err)
	}
	if n, _, err := s.ForgetTools(t.Context(), srv.ID); err != nil || n != store.KeptTools {
		t.Errorf("forgot %d, %v", n, err)
	}
	if got, err := s.SeeTools(t.Context(), srv.ID, listing(map[string]byte{"tool-00001": 2, "tool-02001": 2})); err != nil || got.Changed != nil || got.Beyond != nil {
		t.Errorf("after forgetting: %+v, %v", got, err)
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
