package storetest

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

func testReplicas(t *testing.T, engine New) {
	t.Run("list and drop", func(t *testing.T) { testReplicaList(t, engine) })
	t.Run("two controls at once", func(t *testing.T) { testReplicasAtOnce(t, engine) })
}

// testReplicaList: a replica is listed once, under the longest lease that it
// was given, until it is dropped; and a control that opens the database later
// finds it.
func testReplicaList(t *testing.T, engine New) {
	open, clock := engine(t), newClock()
	s := opened(t, open, store.Config{Now: clock.now})
	started := clock.now()
	later := started.Add(time.Minute)
	of := func(name string, lease time.Duration, own bool, at time.Time) store.Replica {
		return store.Replica{Name: name, Lease: lease, Own: own, JoinedAt: at}
	}
	list := func(name string, lease time.Duration, own bool) func() error {
		return func() error { return s.ListReplica(t.Context(), name, lease, own) }
	}
	drop := func(name string) func() error { return func() error { return s.DropReplica(t.Context(), name) } }
	for _, tt := range []struct {
		name string
		do   func() error
		want []store.Replica
	}{
		{"a new database", func() error { return nil }, nil},
		{"first", list("b", 15*time.Second, false), []store.Replica{of("b", 15*time.Second, false, started)}},
		{"again, longer", list("b", time.Minute, false), []store.Replica{of("b", time.Minute, false, started)}},
		{"again, shorter", list("b", 5*time.Second, false), []store.Replica{of("b", time.Minute, false, started)}},
		{
			"second", func() error { clock.advance(time.Minute); return list("a", 5*time.Second, true)() },
			[]store.Replica{of("a", 5*time.Second, true, later), of("b", time.Minute, false, started)},
		},
		{"moves into the process", list("b", 0, true), []store.Replica{of("a", 5*time.Second, true, later), of("b", time.Minute, true, started)}},
		{"moves out of it", list("b", 0, false), []store.Replica{of("a", 5*time.Second, true, later), of("b", time.Minute, false, started)}},
		{"a stranger dropped", drop("c"), []store.Replica{of("a", 5*time.Second, true, later), of("b", time.Minute, false, started)}},
		{"own dropped", func() error { return s.DropOwnReplicas(t.Context()) }, []store.Replica{of("b", time.Minute, false, started)}},
		{
			"below a microsecond", list("c", time.Second+1, false),
			[]store.Replica{of("b", time.Minute, false, started), of("c", time.Second+time.Microsecond, false, later)},
		},
		{"dropped", drop("b"), []store.Replica{of("c", time.Second+time.Microsecond, false, later)}},
		{
			"listed anew", list("b", 5*time.Second, false),
			[]store.Replica{of("b", 5*time.Second, false, later), of("c", time.Second+time.Microsecond, false, later)},
		},
	} {
		wantErr(t, tt.do(), nil)
		for _, s := range []*store.Store{s, opened(t, open, store.Config{})} {
			got, err := s.Replicas(t.Context())
			wantErr(t, err, nil)
			wantEqual(t, tt.name, got, tt.want)
		}
	}
	wantEqual(t, "revision", revision(t, s), int64(0))
	wantEqual(t, "seq", seq(t, s), int64(0))
}

// testReplicasAtOnce: whoever lists a replica last does not shorten the lease
// that another one gave it.
func testReplicasAtOnce(t *testing.T, engine New) {
	open := engine(t)
	stores := []*store.Store{opened(t, open, store.Config{}), opened(t, open, store.Config{})}
	var group errgroup.Group
	for i := range 24 {
		group.Go(func() error {
			lease := time.Duration(i/3*7%8+1) * time.Second // 1 s to 8 s, in no order
			return stores[i%2].ListReplica(t.Context(), fmt.Sprint("replica-", i%3), lease, false)
		})
	}
	wantErr(t, group.Wait(), nil)
	got, err := stores[0].Replicas(t.Context())
	wantErr(t, err, nil)
	wantEqual(t, "replicas", len(got), 3)
	for _, r := range got {
		wantEqual(t, r.Name, r.Lease, 8*time.Second)
	}
}
