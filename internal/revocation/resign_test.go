package revocation

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

func TestResignationComesAfterTheCut(t *testing.T) {
	e := newEnd(t, Position{})
	e.leased(t, 0)
	var atSending []string
	e.session.send = func(m *pb.FromReplica) error {
		if m.GetResign() == nil || e.Alive() {
			t.Errorf("sent %v, alive %v", m, e.Alive())
		}
		atSending = slices.Clone(e.events)
		return nil
	}
	if err := e.session.resign(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(atSending, []string{"cut all"}) || !slices.Equal(e.events, atSending) || e.Alive() {
		t.Errorf("cut %q before it resigned, %q in all; alive %v", atSending, e.events, e.Alive())
	}
	if err := newEnd(t, Position{}).session.resign(); err != nil {
		t.Errorf("without a lease: %v", err)
	}
}

func TestWhoHasResignedIsNotWaitedFor(t *testing.T) {
	d := newDesk(nil)
	l := d.open(t, "r1")
	w := d.list(Change{Seq: 1})
	d.hear(t, l, &pb.FromReplica{Kind: &pb.FromReplica_Resign{Resign: &pb.Resign{}}})
	if d.settle(w); len(w.open) != 0 || len(d.list(Change{Seq: 2}).open) != 0 {
		t.Errorf("waits for %v", w.open)
	}
	for _, m := range []*pb.FromReplica{ping(1), confirm(0, 0)} {
		if _, err := l.heard(m); err == nil {
			t.Errorf("%v: taken from who has resigned", m)
		}
	}
	if err := d.Sweep(t.Context()); err != nil || d.roster.has("r1") {
		t.Errorf("listed %v, %v", d.roster.listed, err)
	}
	d.open(t, "r1")
	l.leave() // the stream on which it resigned
	if w := d.list(Change{Seq: 3}); len(w.open) != 1 || !d.roster.has("r1") {
		t.Errorf("waits for %v: it has come back", w.open)
	}
}

func TestStoppedReplicaResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.follower.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if w.follower.Alive() || !slices.Equal(w.noted(), []string{"cut all", "cut all"}) {
			t.Errorf("alive %v, events %q", w.follower.Alive(), w.noted())
		}
		start := time.Now()
		if got := w.confirmed(t, w.hub, Change{Seq: w.log.append("one")}); got.Replicas != 0 || time.Since(start) > 0 {
			t.Errorf("%+v after %v", got, time.Since(start))
		}
	})
}

func TestListIsBounded(t *testing.T) {
	d := newDesk(nil)
	if _, err := d.join(t.Context(), &pb.Hello{Replica: strings.Repeat("n", nameMost+1)}, d.send); err == nil {
		t.Error("a name of any length is listed")
	}
	for len(d.replicas) < replicasMost {
		name := strconv.Itoa(len(d.replicas))
		d.replicas[name] = &replica{name: name}
	}
	if _, err := d.join(t.Context(), &pb.Hello{Replica: "one more"}, d.send); err == nil || d.roster.has("one more") {
		t.Errorf("any number is listed: %v", err)
	}
}
