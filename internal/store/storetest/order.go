package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// testConcurrentWriters opens the database twice, as two processes would.
func testConcurrentWriters(t *testing.T, engine New) {
	open := engine(t)
	stores := []*store.Store{opened(t, open, store.Config{}), opened(t, open, store.Config{})}
	const writers, each = 8, 12
	var group errgroup.Group
	for w := range writers {
		s := stores[w%2]
		group.Go(func() error {
			for i := range each {
				name := fmt.Sprint(w, "-", i)
				srv, err := s.CreateServer(t.Context(), store.Server{Name: name}, nil)
				if err != nil {
					return err
				}
				if _, err := s.CreateToken(t.Context(), store.AccessToken{Server: srv.ID, Digest: digest(name)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 4 {
		group.Go(func() error { _, err := stores[1].Keys(t.Context()); return err })
	}
	wantErr(t, group.Wait(), nil)
	changes, err := stores[0].ChangesSince(t.Context(), 0, 0)
	wantErr(t, err, nil)
	wantEqual(t, "changes", len(changes), writers*each+1)
	wantEqual(t, "revision", revision(t, stores[1]), int64(writers*each+1))
}

// testOrder draws what several writers do at once, watches from outside, and
// then compares everything that was seen with the two logs.
func testOrder(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	var names atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		plans := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(steps), 1, 10), 2, 4).Draw(rt, "plans")
		h := &history{s: s, name: func() string { return fmt.Sprint(names.Add(1)) }, ctx: t.Context()}
		if err := h.run(plans); err != nil {
			rt.Fatal(err)
		}
		if err := h.check(); err != nil {
			rt.Fatal(err)
		}
	})
}

type step string

var steps = []step{"server", "token", "token", "token", "delete token", "delete token", "update", "delete server"}

// history is what the writers and the watchers of one run saw.
type history struct {
	s    *store.Store
	ctx  context.Context
	name func() string
	from [2]int64 // revision and seq at the start

	tick atomic.Int64 // orders starts and acknowledgements in real time

	mu      sync.Mutex // guards the rest
	done    []acknowledged
	known   []store.AccessToken
	entries []revocation.Entry
	seen    []sighting
}

// acknowledged is a write that took a revision or a seq; the other is 0.
type acknowledged struct{ start, end, revision, seq int64 }

// sighting is one answer of TokenByDigest.
type sighting struct {
	token store.AccessToken
	found bool
	seq   int64
}

func (h *history) run(plans [][]step) (err error) {
	at, err1 := h.s.Position(h.ctx)
	rev, err2 := h.s.Revision(h.ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	h.from = [2]int64{rev, at.Seq}
	stop := make(chan struct{})
	var watchers, writers errgroup.Group
	watchers.Go(func() error { return h.watch(stop, h.resolveOne) })
	watchers.Go(func() error { return h.watch(stop, h.follow()) })
	for _, plan := range plans {
		writers.Go(func() error { return h.write(plan) })
	}
	err = writers.Wait()
	close(stop)
	return errors.Join(err, watchers.Wait())
}

func (h *history) watch(stop <-chan struct{}, once func(n int) error) error {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := once(n); err != nil {
			return err
		}
	}
}

func (h *history) resolveOne(n int) error {
	h.mu.Lock()
	if len(h.known) == 0 {
		h.mu.Unlock()
		return nil
	}
	tok := h.known[n%len(h.known)]
	h.mu.Unlock()
	_, at, err := h.s.TokenByDigest(h.ctx, tok.Digest)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, sighting{tok, err == nil, at.Seq})
	return nil
}

// follow reads changes as they come: a revision that was read has all of its
// changes, in order and without gaps.
func (h *history) follow() func(int) error {
	last := h.from[0]
	return func(int) error {
		if err := h.entriesUpToPosition(); err != nil {
			return err
		}
		newest, err := h.s.Revision(h.ctx)
		if err != nil {
			return err
		}
		changes, err := h.s.ChangesSince(h.ctx, last, 0)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.Revision != last+1 {
				return fmt.Errorf("change %d follows %d", c.Revision, last)
			}
			last = c.Revision
		}
		if last < newest {
			return fmt.Errorf("revision %d was read, its changes end at %d", newest, last)
		}
		return nil
	}
}

// entriesUpToPosition: who reads a position finds every entry up to it.
func (h *history) entriesUpToPosition() error {
	at, err := h.s.Position(h.ctx)
	if err != nil {
		return err
	}
	log, err := h.s.RevocationsSince(h.ctx, h.from[1], 0)
	if err != nil {
		return err
	}
	if int64(len(log)) < at.Seq-h.from[1] {
		return fmt.Errorf("position %d was read, the log since %d has %d entries", at.Seq, h.from[1], len(log))
	}
	return nil
}

// write carries out one writer's plan on a server of its own.
func (h *history) write(plan []step) error {
	var srv store.Server
	var tokens []store.AccessToken
	for _, step := range append([]step{"server"}, plan...) {
		a := acknowledged{start: h.tick.Add(1)}
		var err error
		switch {
		case step == "server" || srv.ID.IsZero():
			srv, err = h.s.CreateServer(h.ctx, store.Server{Name: h.name()}, nil)
			a.revision, tokens = srv.Revision, nil
		case step == "update":
			srv, err = h.s.UpdateServer(h.ctx, srv.ID, func(s *store.Server) error { s.Name += "x"; return nil }, nil)
			a.revision = srv.Revision
		case step == "delete server":
			a.seq, err = h.revoked(h.s.DeleteServer(h.ctx, srv.ID))
			srv = store.Server{}
		case step == "delete token" && len(tokens) > 0:
			a.seq, err = h.revoked(h.s.DeleteToken(h.ctx, srv.ID, tokens[0].ID))
			tokens = tokens[1:]
		default:
			var tok store.AccessToken
			if tok, err = h.made(srv.ID); err == nil {
				tokens = append(tokens, tok)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		a.end = h.tick.Add(1)
		h.mu.Lock()
		h.done = append(h.done, a)
		h.mu.Unlock()
	}
	return nil
}

func (h *history) made(server identity.ServerID) (store.AccessToken, error) {
	tok, err := h.s.CreateToken(h.ctx, store.AccessToken{Server: server, Digest: digest(h.name())})
	if err != nil {
		return tok, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = append(h.known, tok)
	return tok, nil
}

func (h *history) revoked(e revocation.Entry, err error) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
	return e.Seq, err
}

// check compares what was seen with the log as it is at the end.
func (h *history) check() error {
	log, err := h.s.RevocationsSince(h.ctx, h.from[1], 0)
	if err != nil {
		return err
	}
	for i, e := range log {
		if e.Seq != h.from[1]+int64(i)+1 {
			return fmt.Errorf("entry %d follows %d", e.Seq, h.from[1]+int64(i))
		}
	}
	for _, e := range h.entries {
		if !slices.Contains(log, e) {
			return fmt.Errorf("entry %+v was acknowledged and is not in the log", e)
		}
	}
	if len(log) != len(h.entries) {
		return fmt.Errorf("%d entries in the log, %d were acknowledged", len(log), len(h.entries))
	}
	return errors.Join(h.checkRealTime(), h.checkSightings(log))
}

// checkRealTime: what began after something was acknowledged has a higher
// number.
func (h *history) checkRealTime() error {
	for _, a := range h.done {
		for _, b := range h.done {
			if a.end > b.start {
				continue
			}
			if a.revision > 0 && b.revision > 0 && a.revision >= b.revision || a.seq > 0 && b.seq > 0 && a.seq >= b.seq {
				return fmt.Errorf("%+v was acknowledged before %+v began", a, b)
			}
		}
	}
	return nil
}

// checkSightings: a token resolves exactly at the positions before the entry
// that ends it.
func (h *history) checkSightings(log []revocation.Entry) error {
	ends := map[revocation.Key]int64{}
	for _, e := range log {
		ends[revocation.Key{Kind: e.Kind, Key: e.Key}] = e.Seq
	}
	for _, seen := range h.seen {
		end := ends[revocation.Key{Kind: revocation.KindAccessToken, Key: seen.token.ID}]
		if end == 0 {
			end = ends[revocation.Key{Kind: revocation.KindServer, Key: seen.token.Server.String()}]
		}
		if want := end == 0 || seen.seq < end; seen.found != want {
			return fmt.Errorf("token %s, ended at seq %d: found is %v at seq %d", seen.token.ID, end, seen.found, seen.seq)
		}
	}
	return nil
}
