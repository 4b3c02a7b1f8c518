package revocation

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

func TestRevokedIsAppliedCutAndConfirmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := w.log.append("one"), w.log.append("two")
		got := w.confirmed(t, w.hub, Change{Seq: first, What: key("one")})
		if got.Replicas != 1 || got.Confirmed != 1 || got.StreamsEnded != 2 || len(got.Missing) != 0 {
			t.Errorf("first: %+v", got)
		}
		if got := w.confirmed(t, w.hub, Change{Seq: second, What: key("two")}); got.Confirmed != 1 || got.StreamsEnded != 2 {
			t.Errorf("second: %+v", got)
		}
		known := w.follower.Known()
		if !known.Has(key("one").Hash()) || !known.Has(key("two").Hash()) || known.Has(key("three").Hash()) {
			t.Error("the set is not what was revoked")
		}
		if want := []string{"cut all", "cut one", "cut two"}; !slices.Equal(w.noted(), want) {
			t.Errorf("events %v, want %v", w.noted(), want)
		}
	})
}

func TestUnheardReplicaIsWaitedForUntilItsLeaseIsOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.held = true }) // it pings, and hears nothing
		start := time.Now()
		got := w.confirmed(t, w.hub, Change{Seq: w.log.append("one"), What: key("one")})
		if got.Confirmed != 0 || !slices.Equal(got.Missing, []string{"r1"}) {
			t.Errorf("result %+v", got)
		}
		if w.follower.Alive() {
			t.Error("control answered while the replica could still accept")
		}
		if waited := time.Since(start); waited > testLease+2*time.Second {
			t.Errorf("waited %v, more than the lease", waited)
		}
		if len(w.noted()) != 2 || w.noted()[1] != "cut all" {
			t.Errorf("events %v: control answered before the streams were cut", w.noted())
		}
		w.pipe.set(func() { w.pipe.held = false })
		time.Sleep(5 * time.Second)
		if !w.follower.Alive() || !w.follower.Known().Has(key("one").Hash()) {
			t.Error("heard again, the replica does not hold the lease and the entry")
		}
	})
}

func TestLeaseIsNotRenewedByLateAnswers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.held = true })
		time.Sleep(testLease - 4*time.Second) // answers to six pings wait
		w.pipe.set(func() { w.pipe.held, w.pipe.down = false, true })
		time.Sleep(100 * time.Millisecond)
		w.pipe.set(func() { w.pipe.cut() })
		// The newest ping was sent at most a second before, so its answer
		// carries the lease to one lease after that, and no further.
		time.Sleep(testLease - Margin(testLease))
		if w.follower.Alive() {
			t.Error("the lease counts from the arrival of an answer")
		}
	})
}

func TestDisconnectedReplicaKeepsItsLeaseAndNoMore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.down = true; w.pipe.cut() })
		synctest.Wait()
		if !w.follower.Alive() {
			t.Error("a short break ends the lease")
		}
		got := w.confirmed(t, w.hub, Change{Seq: w.log.append("one")})
		if got.Replicas != 1 || len(got.Missing) != 1 || w.follower.Alive() {
			t.Errorf("result %+v, alive %v: a replica that may still decide is not waited for", got, w.follower.Alive())
		}
		if got := w.hub.Replicas(); len(got) != 0 {
			t.Errorf("replicas %+v: the lease is over and nobody is connected", got)
		}
	})
}

// The replica has not come back to the new hub yet, and may still accept what is
// deleted there.
func TestLeaseOfAnEarlierHubIsWaitedFor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.down = true; w.pipe.cut() })
		hub := w.newHub(w.roster.listed)
		start := time.Now()
		got := w.confirmed(t, hub, Change{Seq: w.log.append("one")})
		if w.follower.Alive() || !slices.Equal(got.Missing, []string{"r1"}) || time.Since(start) > testLease {
			t.Errorf("result %+v after %v, alive %v", got, time.Since(start), w.follower.Alive())
		}
		if got := w.confirmed(t, hub, Change{Seq: w.log.append("two")}); got.Took > 0 || got.Replicas != 0 {
			t.Errorf("waited again, after every earlier lease is over: %+v", got)
		}
	})
}

func TestReplicaThatCameBackToANewHubIsNotWaitedForLonger(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		hub := w.newHub(w.roster.listed)
		w.pipe.set(func() { w.pipe.hub = hub; w.pipe.cut() })
		time.Sleep(2 * time.Second)
		got := w.confirmed(t, hub, Change{Seq: w.log.append("one"), What: key("one")})
		if got.Replicas != 1 || got.Confirmed != 1 || got.Took > time.Second {
			t.Errorf("result %+v", got)
		}
	})
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.held = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := w.hub.Confirmed(ctx, Change{Seq: w.log.append("one")})
		if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(got.Missing, []string{"r1"}) || got.Confirmed != 0 {
			t.Errorf("%+v, %v: who may still accept is not named", got, err)
		}
	})
}

func TestGapBringsTheFullSet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.log.append("old")
		w.hub.Wake()
		synctest.Wait()
		before := w.follower.Known().Generation
		w.pipe.set(func() { w.pipe.down = true; w.pipe.cut() })
		w.log.append("missed")
		last := w.log.append("newest")
		w.log.set(func() { w.log.drop(2) })
		w.pipe.set(func() { w.pipe.down = false })
		if got := w.confirmed(t, w.hub, Change{Seq: last}); got.Confirmed != 1 {
			t.Errorf("result %+v", got)
		}
		known := w.follower.Known()
		if known.Len() != 1 || !known.Has(key("newest").Hash()) || known.Generation != before+1 {
			t.Errorf("%d entries, generation %d after %d, want exactly the kept entry", known.Len(), known.Generation, before)
		}
	})
}

// A clock of control's that was set makes an entry leave the log before a
// stream that is up to date has read it.
func TestEntryThatLeftBeforeItWasSentBringsTheFullSet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		before := w.follower.Known().Generation
		seq := w.log.append("dropped at once")
		w.log.set(func() { w.log.drop(seq) })
		if got := w.confirmed(t, w.hub, Change{Seq: seq}); got.Confirmed != 1 {
			t.Errorf("result %+v", got)
		}
		if known := w.follower.Known(); known.Generation != before+1 {
			t.Error("an entry was passed over, and what was remembered before it still holds")
		}
	})
}

func TestOtherDatabaseEndsRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := newMemoryLog()
		other.at.Database = "b"
		hub := NewHub(HubConfig{Log: other, Roster: w.roster, Lease: testLease})
		follower := NewFollower(w.follower.cfg)
		follower.known.Store(w.follower.Known())
		follower.seen, follower.loaded = w.follower.Known().At, true
		follower.cfg.Client = &pipe{hub: hub}
		if err := follower.Run(t.Context()); !errors.Is(err, ErrOtherDatabase) || follower.Alive() {
			t.Errorf("run: %v, alive %v", err, follower.Alive())
		}
	})
}

func TestControlThatCannotReadRenewsNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		broken := errors.New("disk gone")
		w.log.set(func() { w.log.broken = broken })
		time.Sleep(testLease + time.Second)
		if w.follower.Alive() || !errors.Is(w.hub.Fault(), broken) {
			t.Errorf("a lease was renewed by a control that cannot read its log; fault %v", w.hub.Fault())
		}
		w.log.set(func() { w.log.broken = nil })
		time.Sleep(5 * time.Second)
		if !w.follower.Alive() || w.hub.Fault() != nil {
			t.Errorf("no lease after control can read again; fault %v", w.hub.Fault())
		}
	})
}

// A log that went back is not served any more, also when it catches up.
func TestReplacedLogIsNeverServedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.confirmed(t, w.hub, Change{Seq: w.log.append("one")})
		w.log.set(func() { w.log.at.Seq = 0 })
		time.Sleep(2 * time.Second)
		w.log.set(func() { w.log.at.Seq = 5 })
		time.Sleep(2 * testLease)
		if w.follower.Alive() || !errors.Is(w.hub.Fault(), ErrLogReplaced) {
			t.Errorf("alive %v, fault %v", w.follower.Alive(), w.hub.Fault())
		}
	})
}

// What was committed to a log that went back is not confirmed by who had
// confirmed the same seq of the log as it was.
func TestReplacedLogConfirmsNothing(t *testing.T) {
	d := newDesk(nil)
	l := d.open(t, "r1")
	for _, name := range []string{"one", "two", "three"} {
		d.log.append(name)
	}
	if err := l.bring(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.hear(t, l, confirm(3, 0))
	d.log.set(func() { d.log.at.Seq, d.log.entries = 1, d.log.entries[:1] })
	if got, err := d.Confirmed(t.Context(), Change{Seq: d.log.append("other two")}); !errors.Is(err, ErrLogReplaced) {
		t.Errorf("result %+v, error %v", got, err)
	}
}

// A replica that leaves while its log is read says nothing about the log.
func TestFaultIsNotOfWhoLeft(t *testing.T) {
	d := newDesk(nil)
	d.log.set(func() { d.log.broken = context.Canceled })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.position(ctx); err == nil || d.Fault() != nil {
		t.Errorf("error %v, fault %v", err, d.Fault())
	}
}

// Rights that settings take away end with the lease of who does not take them.
func TestReplicaBehindTheSettingsLosesItsLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		time.Sleep(2 * testLease)
		if !w.follower.Alive() {
			t.Error("no lease although nothing is due")
		}
		w.push(7, 7)
		time.Sleep(testLease + time.Second)
		if w.follower.Alive() {
			t.Error("the lease goes on with settings that are too old")
		}
		w.follower.Settings(7, nil)
		time.Sleep(2 * time.Second)
		if !w.follower.Alive() {
			t.Error("no lease with the settings that are due")
		}
	})
}

func TestSettingsAreConfirmedWithTheStreamsThatTheyEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		server := Key{KindServer, "s"}
		for revision := int64(1); revision <= 2; revision++ {
			w.push(revision, 0)
			go w.follower.Settings(revision, map[Key]int64{server: 3 * revision})
			got := w.confirmed(t, w.hub, Change{Revision: revision, What: server})
			if got.Confirmed != 1 || got.StreamsEnded != 3*revision {
				t.Errorf("revision %d: %+v, want its own %d streams", revision, got, 3*revision)
			}
		}
	})
}

func TestNewestPositionIsKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.confirmed(t, w.hub, Change{Seq: w.log.append("one")})
		time.Sleep(2 * keepEvery)
		w.mu.Lock()
		defer w.mu.Unlock()
		if want := (Position{"a", 1, 1}); w.saw != want {
			t.Errorf("kept %v, want %v", w.saw, want)
		}
	})
}

func TestFirstMessageMustBeHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub(HubConfig{Log: newMemoryLog(), Roster: &memoryRoster{}, Lease: testLease})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &duplex{ctx: ctx, up: make(chan *pb.FromReplica, 1), down: make(chan *pb.ToReplica, 8)}
		s.up <- ping(1)
		if err := hub.Serve(serverEnd{s}); err == nil {
			t.Error("a stream began without a hello")
		}
	})
}
