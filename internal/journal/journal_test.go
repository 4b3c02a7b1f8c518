package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/journal"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedChild); dir != "" {
		followUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

const database = "TESTDATABASE"

var server = identity.ServerID{1}

// history is a database as far as a journal sees it.
type history struct {
	at      store.Reached
	entries []revocation.Entry // kept ones
	most    int                // entries per answer; 0: all
}

func newHistory() *history {
	return &history{at: store.Reached{Position: revocation.Position{Database: database, Epoch: 1}}}
}

func (h *history) end(key string) {
	h.at.Seq++
	h.entries = append(h.entries, revocation.Entry{Seq: h.at.Seq, Kind: revocation.KindAccessToken, Key: key, Server: server})
}

// copy is a backup.
func (h *history) copy() *history {
	return &history{at: h.at, entries: slices.Clone(h.entries), most: h.most}
}

func (h *history) Reached(context.Context) (store.Reached, error) { return h.at, nil }

func (h *history) RevocationsSince(_ context.Context, seq int64, _ int) ([]revocation.Entry, error) {
	var out []revocation.Entry
	for _, e := range h.entries {
		if e.Seq > seq && (h.most == 0 || len(out) < h.most) {
			out = append(out, e)
		}
	}
	return out, nil
}

func opened(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() }) // some tests close it themselves
	return j
}

func follow(t *testing.T, j *journal.Journal, h *history) {
	t.Helper()
	if err := j.Follow(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

func keys(t *testing.T, j *journal.Journal, since store.Reached) (keys []string, complete bool) {
	t.Helper()
	list, complete, err := j.Missing(since)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		keys = append(keys, e.Key)
	}
	return keys, complete
}

func wantMissing(t *testing.T, j *journal.Journal, since store.Reached, complete bool, want ...string) {
	t.Helper()
	if got, whole := keys(t, j, since); !slices.Equal(got, want) || whole != complete {
		t.Errorf("since %s: %v, complete %v; want %v, %v", journal.Describe(since), got, whole, want, complete)
	}
}

func TestJournalKnowsWhatABackupDoesNot(t *testing.T) {
	dir, h := t.TempDir(), newHistory()
	j := opened(t, dir)
	if got := j.Seen(); got != (store.Reached{}) {
		t.Errorf("an empty journal has seen %+v", got)
	}
	follow(t, j, h)
	empty := h.copy()
	h.end("a")
	h.at.Revision = 3
	follow(t, j, h)
	backup := h.copy()
	h.end("b")
	h.end("c")
	follow(t, j, h)
	h.at.Revision = 5
	follow(t, j, h)
	size := fileSize(t, j)
	follow(t, j, h) // nothing new
	if fileSize(t, j) != size {
		t.Error("nothing was new, and something was written")
	}
	for _, j := range []*journal.Journal{j, opened(t, dir)} {
		if j.Seen() != h.at {
			t.Errorf("seen %+v, want %+v", j.Seen(), h.at)
		}
		wantMissing(t, j, h.at, true)
		wantMissing(t, j, backup.at, true, "b", "c")
		wantMissing(t, j, empty.at, true, "a", "b", "c")
		other := backup.at
		other.Database = "OTHER"
		wantMissing(t, j, other, false, "b", "c")
	}
	wantRefused(t, j, backup)
	if fileSize(t, j) != size {
		t.Error("a restored database was noted")
	}
}

func fileSize(t *testing.T, j *journal.Journal) int64 {
	t.Helper()
	info, err := os.Stat(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	return info.Size()
}

// wantRefused wants a restored database to be named as one.
func wantRefused(t *testing.T, j *journal.Journal, h *history) {
	t.Helper()
	var restored *journal.RestoredError
	if err := j.Follow(t.Context(), h); !errors.As(err, &restored) {
		t.Fatalf("error %v, want a RestoredError", err)
	}
	if restored.Seen != j.Seen() || restored.Now != h.at {
		t.Errorf("it says %+v", restored)
	}
}

func TestRestoredIsBehindInAnyNumber(t *testing.T) {
	at := func(database string, epoch, seq, revision int64) store.Reached {
		return store.Reached{Position: revocation.Position{Database: database, Epoch: epoch, Seq: seq}, Revision: revision}
	}
	seen := at("A", 2, 110, 207)
	for _, tt := range []struct {
		name string
		now  store.Reached
		want bool
	}{
		{"as it was", seen, false},
		{"further", at("A", 2, 111, 208), false},
		{"behind in epoch", at("A", 1, 110, 207), true},
		{"behind in epoch, beyond in the rest", at("A", 1, 500, 500), true},
		{"behind in seq", at("A", 2, 109, 300), true},
		{"behind in revision", at("A", 2, 300, 206), true},
		{"a new epoch, behind in seq", at("A", 3, 109, 207), true},
		{"another database", at("B", 1, 0, 0), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := journal.Restored(seen, tt.now)
			if (err != nil) != tt.want {
				t.Fatalf("error %v, want one: %v", err, tt.want)
			}
			if err == nil {
				return
			}
			for _, part := range []string{"epoch 2, seq 110, revision 207", journal.Describe(tt.now), "`arbiter store accept-restore`"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q has no %q", err, part)
				}
			}
		})
	}
	if err := journal.Restored(store.Reached{}, seen); err != nil {
		t.Errorf("nothing was seen, and error %v", err)
	}
}

// Entries that nobody noted before the database dropped them leave a gap: a
// backup from before it cannot be told what it lacks.
func TestGapIsNotComplete(t *testing.T) {
	for _, tt := range []struct {
		name string
		drop int // of entries 3 to 5, which come while nobody follows
	}{{"some of it", 2}, {"all of it", 3}} {
		t.Run(tt.name, func(t *testing.T) {
			dir, h := t.TempDir(), newHistory()
			j := opened(t, dir)
			h.end("1")
			follow(t, j, h)
			before := h.copy()
			h.end("2")
			follow(t, j, h)
			for _, key := range []string{"3", "4", "5"} {
				h.end(key)
			}
			h.entries = h.entries[2+tt.drop:]
			follow(t, j, h)
			after := h.copy()
			h.end("6")
			follow(t, j, h)
			for _, j := range []*journal.Journal{j, opened(t, dir)} {
				if _, complete := keys(t, j, before.at); complete {
					t.Error("complete over the gap")
				}
				wantMissing(t, j, after.at, true, "6")
				if j.Seen() != h.at {
					t.Errorf("seen %+v, want %+v", j.Seen(), h.at)
				}
			}
		})
	}
}

// A database that was accepted goes on in a new epoch. The same backup, and
// the database that was replaced by it, are both refused afterwards.
func TestNewEpoch(t *testing.T) {
	j, h := opened(t, t.TempDir()), newHistory()
	h.end("a")
	follow(t, j, h)
	backup := h.copy()
	h.end("b")
	h.at.Revision = 4
	follow(t, j, h)
	replaced := h.copy()

	h = backup.copy()
	h.at.Epoch, h.at.Seq, h.at.Revision = 2, replaced.at.Seq, 1004
	h.end("b") // once more
	follow(t, j, h)
	h.end("c")
	follow(t, j, h)

	wantRefused(t, j, backup)
	wantMissing(t, j, backup.at, true, "b", "c")
	replaced.end("d") // went on by itself for a while
	replaced.end("e")
	wantRefused(t, j, replaced)
	wantMissing(t, j, replaced.at, true, "b", "c")
	wantMissing(t, j, h.at, true)
}

func TestFollowingInParts(t *testing.T) {
	j, h := opened(t, t.TempDir()), newHistory()
	start := h.at
	h.most = 3
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
		h.end(want[i])
	}
	follow(t, j, h)
	wantMissing(t, j, start, true, want...)
	start.Seq = 10
	wantMissing(t, j, start, true, want[10:]...)
	h.end("21")
	h.end("22")
	h.at.Seq = 21
	follow(t, j, h) // one that was made while it looked waits: at what revision it was is not known
	if j.Seen() != h.at {
		t.Errorf("seen %+v, want %+v", j.Seen(), h.at)
	}
	h.at.Seq = 22
	follow(t, j, h)
	wantMissing(t, j, start, true, append(want[10:], "21", "22")...)
}

func TestRefusesAnotherDatabase(t *testing.T) {
	j, h := opened(t, t.TempDir()), newHistory()
	h.at.Database = "ANOTHER"
	if err := j.Follow(t.Context(), h); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("error %v", err)
	}
	for _, id := range []string{"", "../x", "a/b", "a.b", "a\x00"} {
		if _, err := journal.Open(t.TempDir(), id); err == nil {
			t.Errorf("opened for database %q", id)
		}
	}
}

// Each database has its own memory, so that a database made anew in between
// does not make the first one's forgotten.
func TestDatabasesApart(t *testing.T) {
	dir, h := t.TempDir(), newHistory()
	backup := h.copy()
	h.end("a")
	follow(t, opened(t, dir), h)
	other, err := journal.Open(dir, "OTHER")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Seen() != (store.Reached{}) {
		t.Errorf("seen %+v of another database", other.Seen())
	}
	second := newHistory()
	second.at.Database = "OTHER"
	if err := other.Follow(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, opened(t, dir), backup)
}

// Two deletes that are answered at the same time are both noted.
func TestFollowAtOnce(t *testing.T) {
	j := opened(t, t.TempDir())
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "arbiter.db"), Key: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at, err := s.Reached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own, err := journal.Open(t.TempDir(), at.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := own.Follow(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			srv, err1 := s.CreateServer(t.Context(), store.Server{Name: fmt.Sprint(i)}, nil)
			e, err2 := s.DeleteServer(t.Context(), srv.ID)
			if err := errors.Join(err1, err2, own.Follow(t.Context(), s)); err != nil {
				t.Error(err)
			}
			if own.Seen().Seq < e.Seq {
				t.Errorf("entry %d was not noted", e.Seq)
			}
		})
	}
	group.Wait()
	list, complete, err := own.Missing(at)
	if err != nil || len(list) != 20 || !complete {
		t.Errorf("%d entries, complete %v, %v", len(list), complete, err)
	}
	if err := j.Follow(t.Context(), s); err == nil {
		t.Error("another database was followed")
	}
}
