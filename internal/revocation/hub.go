package revocation

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Log is where entries are kept. Reads after a commit see it.
type Log interface {
	// Position is the newest entry.
	Position(ctx context.Context) (Position, error)
	// RevocationsSince lists kept entries after seq, in order.
	RevocationsSince(ctx context.Context, seq int64, limit int) ([]Entry, error)
	// OldestRevocation is the highest seq that was ever dropped: a reader
	// behind it has a gap and needs the full set.
	OldestRevocation(ctx context.Context) (int64, error)
}

// HubConfig is what a Hub needs.
type HubConfig struct {
	Log   Log
	Lease time.Duration    // how long a replica may go on unconfirmed
	Now   func() time.Time // default time.Now
	Slog  *slog.Logger
	// Due is the revision of the settings that every replica must run by now;
	// who is behind it gets no lease. Nil: any will do.
	Due func() int64
	// Outlived is the longest lease that an earlier hub may have given to a
	// replica that this one does not know; 0: there is no such replica.
	Outlived time.Duration
}

// Hub is control's end: it lists the replicas, carries entries to them and
// waits for their confirmations.
type Hub struct {
	cfg   HubConfig
	since time.Time

	// mu guards the replicas and changed, which is closed and made anew
	// whenever a replica confirms, comes or goes.
	mu       sync.Mutex
	replicas map[string]*replica
	changed  chan struct{}

	wake broadcast
}

// replica is one extauthz as its hub knows it; Hub.mu guards all of it.
type replica struct {
	name       string
	streams    int // open streams; a replica may be reconnecting
	confirmed  int64
	ended      []cut
	leaseUntil time.Time // no later than this can it accept what it has not confirmed
	since      time.Time
}

// cut is how many live streams a replica ended to reach seq.
type cut struct{ seq, streams int64 }

// entriesPerMessage bounds one message of the stream to well under 1 MiB.
const entriesPerMessage = 4096

// NewHub makes a hub without replicas.
func NewHub(cfg HubConfig) *Hub {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Hub{cfg: cfg, since: cfg.Now(), replicas: map[string]*replica{}, changed: make(chan struct{})}
}

// Wake tells every stream that there may be new entries.
func (h *Hub) Wake() { h.wake.send() }

func (h *Hub) join(name string) *replica {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.replicas[name]
	if r == nil {
		r = &replica{name: name, since: h.cfg.Now()}
		h.replicas[name] = r
	}
	r.streams++
	r.leaseUntil = later(r.leaseUntil, h.cfg.Now().Add(h.cfg.Lease))
	h.notify()
	return r
}

// leave keeps the replica listed until its lease has run out: it may still be
// deciding, only unheard.
func (h *Hub) leave(r *replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.streams--
	h.notify()
}

func (h *Hub) extend(r *replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.leaseUntil = later(r.leaseUntil, h.cfg.Now().Add(h.cfg.Lease))
}

func (h *Hub) confirm(r *replica, seq, streams int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq > r.confirmed {
		r.confirmed = seq
	}
	if streams > 0 {
		r.ended = append(r.ended, cut{seq, streams})
		r.ended = r.ended[max(0, len(r.ended)-1024):]
	}
	h.notify()
}

// notify wakes every waiter. Hub.mu is held.
func (h *Hub) notify() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ReplicaState is what the hub knows of one replica.
type ReplicaState struct {
	Name       string
	Connected  bool
	Since      time.Time
	Confirmed  int64
	LeaseUntil time.Time
}

// Replicas lists the replicas that are connected or may still hold a lease.
func (h *Hub) Replicas() []ReplicaState {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []ReplicaState
	for name, r := range h.replicas {
		if r.streams == 0 && !h.cfg.Now().Before(r.leaseUntil) {
			delete(h.replicas, name)
			continue
		}
		out = append(out, ReplicaState{name, r.streams > 0, r.since, r.confirmed, r.leaseUntil})
	}
	slices.SortFunc(out, func(a, b ReplicaState) int { return compareText(a.Name, b.Name) })
	return out
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Confirmed waits until every replica that was listed after seq was committed
// has confirmed it, or can no longer accept anything because its lease ran
// out. It is called after the commit. When ctx ends first, the replicas that
// are still open count as missing.
func (h *Hub) Confirmed(ctx context.Context, seq int64) Result {
	start := h.cfg.Now()
	h.Wake()
	h.awaitOutlived(ctx)
	waiting := map[string]time.Time{} // replica -> end of the lease it may hold without the entry
	for _, r := range h.Replicas() {
		waiting[r.Name] = r.LeaseUntil
	}
	result := Result{Replicas: len(waiting)}
	for len(waiting) > 0 {
		changed, next := h.settle(seq, waiting, &result)
		if len(waiting) == 0 {
			break
		}
		timer := time.NewTimer(next.Sub(h.cfg.Now()))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			for name := range waiting {
				result.Missing = append(result.Missing, name)
			}
			clear(waiting)
		}
		timer.Stop()
	}
	slices.Sort(result.Missing)
	result.Took = h.cfg.Now().Sub(start)
	return result
}

// awaitOutlived waits until nobody can hold a lease of an earlier hub. Whoever
// has come back meanwhile is listed afterwards.
func (h *Hub) awaitOutlived(ctx context.Context) {
	if left := h.outlived(); left > 0 {
		sleep(ctx, left)
	}
}

// Complete reports whether every replica that may hold a lease is listed.
func (h *Hub) Complete() bool { return h.outlived() <= 0 }

// outlived is how long a lease of an earlier hub may still be held.
func (h *Hub) outlived() time.Duration { return h.since.Add(h.cfg.Outlived).Sub(h.cfg.Now()) }

// settle moves replicas that confirmed, or whose lease is over, from waiting
// into result. It returns what announces the next change, and the end of the
// next lease.
func (h *Hub) settle(seq int64, waiting map[string]time.Time, result *Result) (<-chan struct{}, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var next time.Time
	for name, until := range waiting {
		r := h.replicas[name]
		switch {
		case r != nil && r.confirmed >= seq:
			result.Confirmed++
			for _, c := range r.ended {
				if c.seq == seq {
					result.StreamsEnded += c.streams
				}
			}
			delete(waiting, name)
		case !h.cfg.Now().Before(until):
			result.Missing = append(result.Missing, name)
			delete(waiting, name)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	return h.changed, next
}
