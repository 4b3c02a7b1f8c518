package revocation

import (
	"slices"
	"testing"
	"time"
)

func TestWhoIsWaitedFor(t *testing.T) {
	d := newDesk(map[string]time.Duration{"old": testLease, "long gone": 0, "longer": 2 * testLease})
	l := d.open(t, "r1")
	seq := d.log.append("one")
	w := d.list(Change{Seq: seq, What: key("one")})
	if w.result.Replicas != 3 {
		t.Errorf("waits for %d: %v", w.result.Replicas, w.open)
	}
	d.open(t, "later") // gets its set after the commit
	if err := l.bring(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.hear(t, l, confirm(seq, 0, endedOf(key("one"), 3), endedOf(key("two"), 9)))
	if _, next := d.settle(w); len(w.open) != 2 || w.result.Confirmed != 1 || w.result.StreamsEnded != 3 || !next.Equal(d.now.Add(testLease)) {
		t.Errorf("open %v, result %+v, next %v", w.open, w.result, next)
	}
	d.now = d.now.Add(testLease - 1)
	if d.settle(w); len(w.open) != 2 {
		t.Errorf("result %+v: who may hold a lease is not waited for", w.result)
	}
	d.now = d.now.Add(1)
	if d.settle(w); len(w.open) != 1 || !slices.Equal(w.result.Missing, []string{"old"}) {
		t.Errorf("open %v, result %+v", w.open, w.result)
	}
	d.now = d.now.Add(testLease)
	if d.settle(w); len(w.open) != 0 || !slices.Equal(w.result.Missing, []string{"longer", "old"}) || w.result.Took != 2*testLease {
		t.Errorf("open %v, result %+v", w.open, w.result)
	}
}

// A lease may be given without settings until they are due.
func TestSettingsAreWaitedForFromTheirDueTime(t *testing.T) {
	d := newDesk(nil)
	l := d.open(t, "r1")
	d.pushed = 2
	w := d.list(Change{Revision: 2})
	d.now = d.now.Add(testLease/3 + testLease - 1)
	if _, next := d.settle(w); len(w.open) != 1 || !next.Equal(d.now.Add(1)) {
		t.Errorf("open %v, next %v", w.open, next)
	}
	d.now = d.now.Add(1)
	if d.settle(w); !slices.Equal(w.result.Missing, []string{"r1"}) {
		t.Errorf("result %+v", w.result)
	}
	w = d.list(Change{Revision: 2})
	d.hear(t, l, confirm(0, 1))
	if d.settle(w); len(w.open) != 1 {
		t.Error("older settings answer for newer ones")
	}
	d.hear(t, l, confirm(0, 2))
	if d.settle(w); w.result.Confirmed != 1 {
		t.Errorf("result %+v", w.result)
	}
}

func TestStreamsEndedAreOfTheChangeItself(t *testing.T) {
	d := newDesk(nil)
	l := d.open(t, "r1")
	server := Key{KindServer, "s"}
	for revision := int64(1); revision <= 3; revision++ {
		d.pushed = revision
		w := d.list(Change{Revision: revision, What: server})
		d.hear(t, l, confirm(0, revision, endedOf(server, 10*revision), endedOf(key("s"), 500)))
		if d.settle(w); w.result.StreamsEnded != 10*revision {
			t.Errorf("revision %d: %d streams", revision, w.result.StreamsEnded)
		}
	}
	for range 2 * endedKept {
		d.hear(t, l, confirm(0, 3, endedOf(server, 1)))
	}
	if n := len(l.r.ended); n > endedKept {
		t.Errorf("%d numbers are kept for ever", n)
	}
}

func TestTookCountsFromTheRequest(t *testing.T) {
	d := newDesk(nil)
	for asked, want := range map[time.Time]time.Duration{{}: time.Second, d.now.Add(-3 * time.Second): 4 * time.Second} {
		w := d.list(Change{Seq: 1, Asked: asked})
		d.now = d.now.Add(time.Second)
		if d.settle(w); w.result.Took != want {
			t.Errorf("asked %v: took %v, want %v", asked, w.result.Took, want)
		}
		d.now = d.now.Add(-time.Second)
	}
}

func TestRefusedSettingsAreNotWaitedFor(t *testing.T) {
	d := newDesk(nil)
	d.open(t, "b")
	d.open(t, "a")
	good := d.open(t, "good")
	d.pushed = 2
	w := d.list(Change{Revision: 2})
	d.settle(w)
	d.excuse(w, map[string]string{"b": "no", "a": "not me", "unknown": "?"})
	want := []Refusal{{"a", "not me"}, {"b", "no"}}
	if len(w.open) != 1 || !slices.Equal(w.result.Refused, want) || w.result.Confirmed != 0 {
		t.Errorf("open %v, result %+v", w.open, w.result)
	}
	d.hear(t, good, confirm(0, 2))
	d.settle(w)
	if err := w.result.refusal(); len(w.open) != 0 || w.result.Confirmed != 1 || err == nil ||
		err.Error() != "replica a refused the settings: not me; replica b refused the settings: no" {
		t.Errorf("result %+v, %v", w.result, err)
	}
}

// An entry ends what it ends whatever the settings say: who refuses them has
// confirmed it, or is waited for.
func TestRefusedSettingsDoNotExcuseAnEntry(t *testing.T) {
	d := newDesk(nil)
	l := d.open(t, "r1")
	seq := d.log.append("one")
	d.pushed = 2
	w := d.list(Change{Seq: seq, Revision: 2, What: key("one")})
	refusals := map[string]string{"r1": "no"}
	d.settle(w)
	if d.excuse(w, refusals); len(w.open) != 1 || len(w.result.Refused) != 0 {
		t.Errorf("open %v, result %+v", w.open, w.result)
	}
	if err := l.bring(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.hear(t, l, confirm(seq, 0, endedOf(key("one"), 3)))
	d.settle(w)
	if d.excuse(w, refusals); len(w.open) != 0 || w.result.Confirmed != 1 || w.result.StreamsEnded != 3 || w.result.refusal() != nil {
		t.Errorf("open %v, result %+v", w.open, w.result)
	}
	w = d.list(Change{Seq: seq})
	if d.excuse(w, refusals); len(w.open) != 1 {
		t.Error("a change without settings is excused")
	}
}
