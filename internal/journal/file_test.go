package journal_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/journal"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func TestCompacted(t *testing.T) {
	dir, h := t.TempDir(), newHistory()
	j := opened(t, dir)
	j.Keep(10)
	follow(t, j, h)
	states := map[int64]store.Reached{} // seq -> the database then
	most := 0
	for i := range 95 {
		h.end(fmt.Sprint(i + 1))
		h.at.Revision += int64(i % 2)
		follow(t, j, h)
		h.at.Revision++
		follow(t, j, h)
		states[h.at.Seq] = h.at
		most = max(most, j.Lines())
	}
	if most > 23 {
		t.Errorf("the file had %d lines, want at most twice 10 and what one call adds", most)
	}
	again := opened(t, dir)
	again.Keep(10)
	for name, j := range map[string]*journal.Journal{"open": j, "opened": again} {
		if j.Seen() != h.at {
			t.Errorf("%s: seen %+v, want %+v", name, j.Seen(), h.at)
		}
		for seq, at := range states {
			got, complete := keys(t, j, at)
			if seq >= 85 && (!complete || len(got) != int(95-seq)) {
				t.Errorf("%s: since %d: %v, complete %v", name, seq, got, complete)
			}
			if seq < 70 && complete {
				t.Errorf("%s: since %d: complete", name, seq)
			}
		}
	}
	for range 100 { // settings alone do not fill it either
		h.at.Revision++
		follow(t, j, h)
	}
	if j.Lines() > 23 {
		t.Errorf("the file has %d lines", j.Lines())
	}
	wantMissing(t, j, states[94], true, "95")
	if left, err := filepath.Glob(j.Path() + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// A disk that fails leaves nothing half noted, and nothing forgotten.
func TestFailingDisk(t *testing.T) {
	dir, h := t.TempDir(), newHistory()
	j := opened(t, dir)
	follow(t, j, h)
	start := h.at
	h.end("a")
	readOnly, err := os.Open(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	good, seen := j.Break(readOnly), j.Seen()
	if err := j.Follow(t.Context(), h); err == nil {
		t.Fatal("the disk failed, and Follow did not")
	}
	if j.Seen() != seen {
		t.Errorf("seen %+v after a failure", j.Seen())
	}
	wantMissing(t, j, start, true)
	// What did get through before the failure must not stay.
	if _, err := good.WriteAt(bytes.Repeat([]byte("{\"half\":\n"), 200), fileSize(t, j)); err != nil {
		t.Fatal(err)
	}
	j.Break(good)
	follow(t, j, h)
	for _, j := range []*journal.Journal{j, opened(t, dir)} {
		wantMissing(t, j, start, true, "a")
	}
}

func TestModeIsNarrowed(t *testing.T) {
	dir, h := t.TempDir(), newHistory()
	j := opened(t, dir)
	follow(t, j, h)
	if err := os.Chmod(j.Path(), 0o644); err != nil {
		t.Fatal(err)
	}
	fileSize(t, opened(t, dir))
}

func TestLinesAreReadable(t *testing.T) {
	j, h := opened(t, t.TempDir()), newHistory()
	h.at.Revision = 3
	follow(t, j, h)
	h.end("k")
	follow(t, j, h)
	text, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"database":"TESTDATABASE","epoch":1,"seq":0,"revision":3}
{"database":"TESTDATABASE","epoch":1,"seq":1,"revision":3,"kind":1,"key":"k","server":"` + server.String() + `"}
`
	if string(text) != want {
		t.Errorf("wrote\n%s\nwant\n%s", text, want)
	}
}
