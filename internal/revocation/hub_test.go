package revocation

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// desk is a Hub whose clock is set by the test, and what it has sent.
type desk struct {
	*Hub
	log    *memoryLog
	roster *memoryRoster
	now    time.Time
	pushed int64
	due    int64
	sent   []*pb.ToReplica
}

func newDesk(listed map[string]time.Duration) *desk {
	d := &desk{log: newMemoryLog(), roster: &memoryRoster{}, now: bigBang}
	d.Hub = NewHub(HubConfig{
		Log: d.log, Roster: d.roster, Listed: listed, Lease: testLease, Now: func() time.Time { return d.now },
		Pushed: func() int64 { return d.pushed }, Due: func() int64 { return d.due }, Grace: testLease / 3,
	})
	return d
}

func (d *desk) send(m *pb.ToReplica) error {
	d.sent = append(d.sent, m)
	return nil
}

// open joins and starts a link.
func (d *desk) open(t *testing.T, name string) *link {
	t.Helper()
	hello := &pb.Hello{Replica: name, Empty: true}
	l, err := d.join(t.Context(), hello, d.send)
	if err == nil {
		err = l.start(t.Context(), hello)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (d *desk) hear(t *testing.T, l *link, m *pb.FromReplica) {
	t.Helper()
	if _, err := l.heard(m); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) last() *pb.ToReplica { return d.sent[len(d.sent)-1] }

func TestReplicaIsListedBeforeItGetsASet(t *testing.T) {
	d := newDesk(nil)
	d.roster.before = func(string) {
		if len(d.Replicas()) > 0 || len(d.sent) > 0 {
			t.Error("it gets something before it is on the list")
		}
	}
	d.open(t, "r1")
	if !d.roster.has("r1") || len(d.Replicas()) != 1 || len(d.sent) != 1 {
		t.Errorf("listed %v, replicas %v", d.roster.listed, d.Replicas())
	}
	d.roster.before = nil
	d.roster.broken = errors.New("disk full")
	if _, err := d.join(t.Context(), &pb.Hello{Replica: "r2"}, d.send); err == nil || len(d.Replicas()) != 1 {
		t.Errorf("a replica that cannot be listed has a stream: %v", err)
	}
	if _, err := d.join(t.Context(), &pb.Hello{}, d.send); err == nil {
		t.Error("a replica without a name has a stream")
	}
}

func TestPingMovesTheLeaseBeforeItIsAnswered(t *testing.T) {
	d := newDesk(nil)
	l := d.open(t, "r1")
	d.now = d.now.Add(4 * time.Second)
	number, err := l.heard(ping(7))
	if err != nil || number != 7 {
		t.Fatalf("ping %d, %v", number, err)
	}
	if got := d.Replicas()[0].LeaseUntil; !got.Equal(d.now.Add(testLease)) {
		t.Errorf("the lease is counted until %v", got)
	}
	d.log.append("one") // after the ping came
	if err := l.pong(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	entries, answer := d.sent[len(d.sent)-2].GetRevoked(), d.last().GetPong()
	if entries.GetSeq() != 1 || answer.GetNewest() != 1 || answer.GetNumber() != 7 {
		t.Errorf("sent %v, then %v: want the entry, then an answer that knows it", entries, answer)
	}
}

func TestMessageThatIsNotBelieved(t *testing.T) {
	d := newDesk(nil)
	d.pushed = 4
	for _, seq := range []string{"one", "two"} {
		d.log.append(seq)
	}
	l := d.open(t, "r1")
	d.log.append("three")
	w := d.list(Change{Seq: 3})
	for name, m := range map[string]*pb.FromReplica{
		"a seq that was not sent":          confirm(3, 0),
		"settings that were not pushed":    confirm(2, 5),
		"both":                             confirm(9, 9),
		"nothing":                          {},
		"a second hello":                   {Kind: &pb.FromReplica_Hello{Hello: &pb.Hello{Replica: "r1"}}},
		"a ping without a number":          ping(0),
		"a ping with a number that is not": ping(-1),
	} {
		if _, err := l.heard(m); err == nil {
			t.Errorf("%s: believed", name)
		}
	}
	if got := d.Replicas()[0]; got.Confirmed != 0 || got.Revision != 0 {
		t.Errorf("a lie counts: %+v", got)
	}
	if d.settle(w); len(w.open) != 1 || w.result.Confirmed != 0 {
		t.Errorf("a lie answers a delete: %+v", w.result)
	}
	d.hear(t, l, confirm(2, 4))
	if got := d.Replicas()[0]; got.Confirmed != 2 || got.Revision != 4 {
		t.Errorf("the truth does not count: %+v", got)
	}
}

func TestConfirmationOfANewStreamIsNotOneOfTheOld(t *testing.T) {
	d := newDesk(nil)
	d.log.append("one")
	d.open(t, "r1")
	l, err := d.join(t.Context(), &pb.Hello{Replica: "r1"}, d.send)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.heard(confirm(1, 0)); err == nil {
		t.Error("what another stream was sent may be confirmed")
	}
}

// The floor: what was pushed before a link was opened is asked for at once.
func TestNewStreamNeedsTheSettingsThatArePushed(t *testing.T) {
	d := newDesk(nil)
	before := d.open(t, "r1")
	d.pushed, d.due = 7, 3
	after := d.open(t, "r2")
	for l, want := range map[*link]int64{before: 3, after: 7} {
		if err := l.pong(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if got := d.last().GetPong().GetRevision(); got != want {
			t.Errorf("%s: revision %d, want %d", l.r.name, got, want)
		}
	}
	d.due = 9
	if err := after.pong(t.Context(), 2); err != nil || d.last().GetPong().GetRevision() != 9 {
		t.Errorf("the floor holds back what is due: %v, %v", d.last(), err)
	}
}

func TestStart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hello  *pb.Hello
		full   bool
		names  []string
		refuse bool
	}{
		{"new", &pb.Hello{Empty: true}, true, []string{"3", "4", "5"}, false},
		{"new, with a disk that has seen it", &pb.Hello{Database: "a", Epoch: 2, Seq: 5, Empty: true}, true, []string{"3", "4", "5"}, false},
		{"up to date", &pb.Hello{Database: "a", Epoch: 2, Seq: 5}, false, nil, false},
		{"a little behind", &pb.Hello{Database: "a", Epoch: 2, Seq: 3}, false, []string{"4", "5"}, false},
		{"at what was dropped last", &pb.Hello{Database: "a", Epoch: 2, Seq: 2}, false, []string{"3", "4", "5"}, false},
		{"behind what was dropped", &pb.Hello{Database: "a", Epoch: 2, Seq: 1}, true, []string{"3", "4", "5"}, false},
		{"of an earlier epoch", &pb.Hello{Database: "a", Epoch: 1, Seq: 5}, true, []string{"3", "4", "5"}, false},
		{"of another database", &pb.Hello{Database: "b", Epoch: 2, Seq: 5}, true, []string{"3", "4", "5"}, false},
		{"ahead", &pb.Hello{Database: "a", Epoch: 2, Seq: 6}, false, nil, true},
		{"of a later epoch", &pb.Hello{Database: "a", Epoch: 3, Seq: 1}, false, nil, true},
		{"new, and ahead by its disk", &pb.Hello{Database: "a", Epoch: 2, Seq: 6, Empty: true}, false, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(nil)
			d.log.at.Epoch = 2
			for n := range 5 {
				d.log.append(strconv.Itoa(n + 1))
			}
			d.log.drop(2)
			tt.hello.Replica = "r1"
			l, err := d.join(t.Context(), tt.hello, d.send)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.start(t.Context(), tt.hello); (err != nil) != tt.refuse {
				t.Fatalf("start: %v", err)
			}
			if tt.refuse {
				if len(d.sent) > 0 {
					t.Errorf("sent %v to who knows more", d.sent)
				}
				return
			}
			got := d.last().GetRevoked()
			var names []string
			for _, e := range got.GetEntries() {
				names = append(names, e.GetKey())
			}
			if got.GetFull() != tt.full || !slices.Equal(names, tt.names) || got.GetSeq() != 5 {
				t.Errorf("sent %v", got)
			}
		})
	}
}

func TestLongRunIsSentInParts(t *testing.T) {
	d := newDesk(nil)
	const most = 2*entriesPerMessage + 1
	for n := range most {
		d.log.append(strconv.Itoa(n))
	}
	d.open(t, "r1")
	e := newEnd(t, Position{})
	generation := e.Known().Generation
	for i, m := range d.sent {
		if m.GetRevoked().GetMore() != (i < 2) {
			t.Errorf("message %d of %d: more %v", i, len(d.sent), m.GetRevoked().GetMore())
		}
		e.hear(t, m.GetRevoked())
	}
	if known := e.Known(); known.Len() != most || known.At.Seq != most || known.Generation != generation+1 {
		t.Errorf("%d entries at %v", known.Len(), known.At)
	}
}

// Entries are read in another moment than their position.
func TestWhatChangesBetweenTwoReads(t *testing.T) {
	for name, change := range map[string]func(l *memoryLog){
		"an entry is dropped":   func(l *memoryLog) { l.drop(3) },
		"an older copy is back": func(l *memoryLog) { l.at.Seq, l.entries = 1, l.entries[:1] },
		"another database":      func(l *memoryLog) { l.at.Database, l.entries = "b", nil },
		"the disk breaks":       func(l *memoryLog) { l.broken = errors.New("disk gone") },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(nil)
			d.log.append("one")
			l := d.open(t, "r1")
			d.log.append("two")
			d.log.append("three")
			d.log.read = func() { change(d.log) }
			sent := len(d.sent)
			if err := l.bring(t.Context()); err == nil || len(d.sent) != sent {
				t.Errorf("sent %v, error %v: the replica would confirm what it was not told", d.sent[sent:], err)
			}
		})
	}
}

func TestSweep(t *testing.T) {
	d := newDesk(map[string]time.Duration{"old": testLease})
	left, stays := d.open(t, "left"), d.open(t, "stays")
	d.roster.listed["old"] = testLease
	twice := d.open(t, "left")
	left.leave()
	d.now = d.now.Add(testLease)
	if err := d.Sweep(t.Context()); err != nil || !d.roster.has("left") || d.roster.has("old") || !d.roster.has("stays") {
		t.Errorf("listed %v, %v", d.roster.listed, err)
	}
	twice.leave()
	stays.leave()
	d.hear(t, stays, ping(1)) // came late, and may still be answered
	d.roster.broken = errors.New("disk full")
	if err := d.Sweep(t.Context()); !errors.Is(err, d.roster.broken) {
		t.Errorf("error %v", err)
	}
	if got := d.Replicas(); len(got) != 1 || got[0].Name != "stays" || got[0].Connected {
		t.Errorf("replicas %+v", got)
	}
}

// Who joins while it is struck off waits, and is on the list afterwards: the
// list on disk and the one in memory change together.
func TestListChangesOneAtATime(t *testing.T) {
	d := newDesk(map[string]time.Duration{"r1": 0})
	var changes []string
	d.roster.before = func(what string) {
		changes = append(changes, what)
		if d.listing.TryLock() {
			d.listing.Unlock()
			t.Errorf("%s: another change could come in between", what)
		}
	}
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.open(t, "r1")
	if err := d.strike(t.Context(), "r1"); err != nil { // found gone before it joined
		t.Fatal(err)
	}
	if w := d.list(Change{Seq: 1}); !d.roster.has("r1") || len(w.open) != 1 || !slices.Equal(changes, []string{"remove r1", "add r1"}) {
		t.Errorf("changes %q, waited for %v: a replica with a stream is not known", changes, w.open)
	}
}
