package revocation

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// end is a Follower without a network: its clock is set by the test, what it
// sends and cuts is noted.
type end struct {
	*Follower
	session *session
	at      Instant
	sent    []*pb.FromReplica
	events  []string
	breaks  error // of sending
}

func newEnd(t *testing.T, seen Position) *end {
	t.Helper()
	e := &end{at: instant(0, 0)}
	e.Follower = NewFollower(FollowerConfig{
		Replica: "r1", Slog: slog.New(slog.DiscardHandler), Clock: func() Instant { return e.at }, Seen: seen,
		Cut: func(keys ...Key) []int64 {
			for _, k := range keys {
				e.events = append(e.events, fmt.Sprintf("cut %s, applied %v", k.Key, e.Known().Has(k.Hash())))
			}
			return make([]int64, len(keys))
		},
		CutAll: func() { e.events = append(e.events, "cut all") },
	})
	e.connect(t)
	return e
}

func (e *end) connect(t *testing.T) {
	t.Helper()
	var err error
	e.session, err = e.open(func(m *pb.FromReplica) error {
		e.sent = append(e.sent, m)
		if m.GetConfirm() != nil {
			e.events = append(e.events, fmt.Sprint("confirm ", m.GetConfirm().GetSeq()))
		}
		return e.breaks
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (e *end) hear(t *testing.T, m *pb.Revoked) {
	t.Helper()
	if err := e.session.heard(toReplica(m)); err != nil {
		t.Fatal(err)
	}
}

// lease has it hold one that begins now.
func (e *end) leased(t *testing.T, seq int64) {
	t.Helper()
	e.hear(t, full(seq))
	e.pong(pong(e.session.number, seq))
	if !e.Alive() {
		t.Fatal("no lease")
	}
	e.events = nil
}

func (e *end) pong(p *pb.Pong) {
	if err := e.session.heard(&pb.ToReplica{Kind: &pb.ToReplica_Pong{Pong: p}}); err != nil {
		panic(err)
	}
}

func (e *end) pass(d time.Duration) {
	e.at = Instant{e.at.Boot + d, e.at.Wall.Add(d)}
}

func (e *end) ping(t *testing.T) int64 {
	t.Helper()
	if err := e.session.ping(); err != nil {
		t.Fatal(err)
	}
	return e.session.number
}

func TestOrderIsSetCutConfirm(t *testing.T) {
	e := newEnd(t, Position{})
	if e.Alive() || len(e.sent) != 1 || !e.sent[0].GetHello().GetEmpty() {
		t.Fatalf("sent %v, alive %v", e.sent, e.Alive())
	}
	if e.ping(t) != 0 {
		t.Error("a ping was sent before there is a set")
	}
	e.hear(t, full(1, "one"))
	e.hear(t, revoked(1, 2, "two"))
	want := []string{"cut all", "confirm 1", "cut two, applied true", "confirm 2"}
	if !slices.Equal(e.events, want) {
		t.Errorf("events %q, want %q", e.events, want)
	}
}

func TestLeaseCountsFromBeforeThePing(t *testing.T) {
	e := newEnd(t, Position{})
	e.hear(t, full(0)) // sends the first ping
	e.pass(5 * time.Second)
	e.pong(pong(1, 0))
	length := testLease - Margin(testLease)
	e.pass(length - 5*time.Second - 1)
	if !e.Alive() {
		t.Error("the lease is over too early")
	}
	e.pass(1)
	if e.Alive() {
		t.Error("the lease does not count from before its ping, or not less the margin")
	}
	if now := e.Now(); !now.Equal(bigBang.Add(length)) {
		t.Errorf("control's time is %v, want %v", now, bigBang.Add(length))
	}
}

func TestPongThatRenewsNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		pong func(p *pb.Pong)
		late time.Duration
	}{
		{"of a ping that was not sent", func(p *pb.Pong) { p.Number = 9 }, 0},
		{"of no ping", func(p *pb.Pong) { p.Number = 0 }, 0},
		{"with a newer entry", func(p *pb.Pong) { p.Newest = 4 }, 0},
		{"with an older entry", func(p *pb.Pong) { p.Newest = 2 }, 0},
		{"with newer settings", func(p *pb.Pong) { p.Revision = 6 }, 0},
		{"with no lease", func(p *pb.Pong) { p.LeaseMs = 0 }, 0},
		{"too late", func(*pb.Pong) {}, testLease},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnd(t, Position{})
			e.Settings(5, nil)
			e.hear(t, full(3))
			e.pass(tt.late)
			p := pong(1, 3)
			p.Revision = 5
			tt.pong(p)
			e.pong(p)
			if e.Alive() {
				t.Error("it renews")
			}
		})
	}
	e := newEnd(t, Position{})
	e.hear(t, full(3))
	for range pingsKept + 1 {
		e.ping(t)
	}
	e.pong(pong(1, 3))
	if e.Alive() || len(e.session.sent) > pingsKept {
		t.Errorf("%d pings are kept for ever", len(e.session.sent))
	}
}

func TestPongOfAnotherStreamRenewsNothing(t *testing.T) {
	e := newEnd(t, Position{})
	e.hear(t, full(3))
	e.connect(t)
	e.pong(pong(1, 3))
	if e.Alive() {
		t.Error("it renews")
	}
}

func TestLostLeaseIsCutOnceAndNotMended(t *testing.T) {
	e := newEnd(t, Position{})
	e.leased(t, 0)
	e.at.Wall = e.at.Wall.Add(time.Hour) // the clock jumps, and nobody has looked yet
	number := e.ping(t)
	e.pong(pong(number, 0))
	if want := []string{"cut all"}; !slices.Equal(e.events, want) || !e.Alive() {
		t.Errorf("events %q, want %q before the next lease; alive %v", e.events, want, e.Alive())
	}
	e.pass(testLease)
	e.watch()
	e.watch()
	if len(e.events) != 2 || e.Alive() {
		t.Errorf("events %q, want one cut for each lease that was lost", e.events)
	}
}

func TestRunOfSeveralMessagesIsAppliedAsOne(t *testing.T) {
	e := newEnd(t, Position{})
	first, second := full(2, "a", "b"), revoked(2, 4, "c", "d")
	first.More, second.Full = true, true
	e.hear(t, first)
	if e.Known().Len() != 0 || len(e.events) != 0 || e.ping(t) != 0 {
		t.Error("half a run was applied")
	}
	e.hear(t, second)
	if known := e.Known(); known.Len() != 4 || known.At.Seq != 4 {
		t.Errorf("%d entries at %v", known.Len(), known.At)
	}
}

func TestFullSetBeginsAGeneration(t *testing.T) {
	e := newEnd(t, Position{})
	e.hear(t, full(1, "one"))
	memory := e.Known().Remember(e.at)
	e.hear(t, revoked(1, 2, "two"))
	if !e.Known().Holds(memory, e.at, time.Minute) {
		t.Error("an entry makes everything be forgotten")
	}
	e.events = nil
	e.hear(t, full(5, "five"))
	known := e.Known()
	if known.Holds(memory, e.at, time.Minute) || known.Has(key("one").Hash()) || !slices.Equal(e.events, []string{"cut all", "confirm 5"}) {
		t.Errorf("a gap leaves what was before it; events %q", e.events)
	}
}

func TestRunThatIsRefused(t *testing.T) {
	epoch := func(m *pb.Revoked, epoch int64) *pb.Revoked { m.Epoch = epoch; return m }
	other := func(m *pb.Revoked) *pb.Revoked { m.Database = "b"; return m }
	bad := revoked(5, 6, "six")
	bad.Entries[0].ServerId = "no id"
	for _, tt := range []struct {
		name string
		run  *pb.Revoked
		want string
	}{
		{"leaves a gap", revoked(6, 7, "seven"), "after seq 6"},
		{"comes twice", revoked(4, 5, "five"), "after seq 4"},
		{"of another epoch", epoch(revoked(5, 6, "six"), 2), "after seq 5"},
		{"of an older epoch", epoch(full(9), 0), "restored"},
		{"of an older state", full(4), "restored"},
		{"of another database", other(full(9)), "start this replica again"},
		{"entries of another database", other(revoked(5, 6, "six")), "start this replica again"},
		{"with an entry that cannot be read", bad, "server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnd(t, Position{})
			e.leased(t, 5)
			before, sent := e.Known(), len(e.sent)
			err := e.session.heard(toReplica(tt.run))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if e.Known() != before || len(e.sent) != sent || len(e.events) > 0 {
				t.Errorf("it was applied, confirmed or cut: %v, %q", e.Known().At, e.events)
			}
		})
	}
	e := newEnd(t, Position{})
	if err := e.session.heard(&pb.ToReplica{}); err == nil {
		t.Error("a message of no kind is taken")
	}
	if err := e.session.heard(toReplica(revoked(0, 1, "one"))); err == nil {
		t.Error("entries are taken before there is a set")
	}
}

// What the machine's disk remembers outlives the process.
func TestRestoredLogIsNotFollowedAfterARestart(t *testing.T) {
	e := newEnd(t, Position{"a", 2, 7})
	hello := e.sent[0].GetHello()
	if hello.GetDatabase() != "a" || hello.GetEpoch() != 2 || hello.GetSeq() != 7 || !hello.GetEmpty() {
		t.Errorf("hello %v", hello)
	}
	older := full(6)
	older.Epoch = 2
	if err := e.session.heard(toReplica(older)); !errors.Is(err, ErrRestored) {
		t.Errorf("an older state: %v", err)
	}
	e.session.run = nil
	accepted := full(3)
	accepted.Epoch = 3
	e.hear(t, accepted)
	if e.Known().At != (Position{"a", 3, 3}) {
		t.Errorf("at %v", e.Known().At)
	}
}

func TestOtherDatabaseIsFollowedByANewProcess(t *testing.T) {
	e := newEnd(t, Position{"b", 5, 99})
	e.hear(t, full(1, "one"))
	if e.Known().At != (Position{"a", 1, 1}) {
		t.Errorf("at %v", e.Known().At)
	}
}

func TestEntriesLeaveTheSet(t *testing.T) {
	e := newEnd(t, Position{})
	var saw []Position
	e.cfg.Saw = func(at Position) { saw = append(saw, at) }
	e.hear(t, full(1, "one"))
	generation := e.Known().Generation
	e.keep()
	e.keep()
	e.pass(time.Hour - time.Second)
	e.keep()
	if !e.Known().Has(key("one").Hash()) {
		t.Error("an entry leaves before its life is over")
	}
	e.pass(4 * time.Second)
	e.keep()
	if e.Known().Len() != 0 || e.Known().At.Seq != 1 || e.Known().Generation != generation {
		t.Errorf("an entry stays for ever: %+v", e.Known().At)
	}
	if !slices.Equal(saw, []Position{{"a", 1, 1}}) {
		t.Errorf("kept %v", saw)
	}
}
