package revocation

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// Roster is the list of replicas that may hold a lease, on disk: a control that
// is started anew knows whom its predecessor gave one.
type Roster interface {
	// Add returns when the replica is listed for good.
	Add(ctx context.Context, replica string, lease time.Duration) error
	// Remove is called when its lease is over and it is not connected.
	Remove(ctx context.Context, replica string) error
}

// HubConfig is what a Hub needs.
type HubConfig struct {
	Log    Log
	Roster Roster
	Listed map[string]time.Duration // replicas of earlier controls, and the longest lease each may hold
	Lease  time.Duration            // how long a replica may go on unconfirmed
	Now    func() time.Time         // default time.Now

	// Pushed is the newest revision of the settings, Due the newest that every
	// replica must run: who is behind it gets no lease, and Due follows Pushed
	// within Grace. Nil: any revision will do.
	Pushed func() int64
	Due    func() int64
	Grace  time.Duration
	// Refusals says which replicas do not take a revision, and why; the channel
	// is closed when that may have changed. Nil: they all do.
	Refusals func(revision int64) (by map[string]string, changed <-chan struct{})
}

// Hub is control's end: it lists the replicas, carries entries to them and
// waits for their confirmations.
type Hub struct {
	cfg HubConfig

	// listing is held while the list changes, in memory and on disk.
	listing sync.Mutex

	// mu guards the replicas, newest, fault and changed, which is closed and
	// made anew whenever a replica confirms, comes or goes.
	mu       sync.Mutex
	replicas map[string]*replica
	newest   Position // that was read of the log
	fault    error    // why nobody gets a lease; nil: they do
	changed  chan struct{}

	wake broadcast
}

// replica is one extauthz as its hub knows it; Hub.mu guards all of it.
type replica struct {
	name       string
	links      int // open streams; a replica may be reconnecting
	confirmed  int64
	revision   int64
	ended      []endedBy
	leaseUntil time.Time // no later than this can it accept what it has not confirmed
	resigned   bool      // it accepts nothing any more, and has no live streams
	since      time.Time
}

// endedBy is how many live streams of a key a replica has cut before it
// confirmed a seq and a revision.
type endedBy struct {
	key                    Key
	streams, seq, revision int64
}

// endedKept is how many such numbers a replica keeps; their change is waited
// for, so the newest are enough.
const endedKept = 4096

// NewHub makes a hub that knows the listed replicas, as not connected.
func NewHub(cfg HubConfig) *Hub {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Pushed == nil || cfg.Due == nil {
		cfg.Pushed = func() int64 { return 0 }
		cfg.Due = cfg.Pushed
	}
	if cfg.Refusals == nil {
		cfg.Refusals = func(int64) (map[string]string, <-chan struct{}) { return nil, nil }
	}
	h := &Hub{cfg: cfg, replicas: map[string]*replica{}, changed: make(chan struct{})}
	for name, lease := range cfg.Listed {
		h.replicas[name] = &replica{name: name, since: cfg.Now(), leaseUntil: cfg.Now().Add(lease)}
	}
	return h
}

// Wake tells every stream that there may be new entries.
func (h *Hub) Wake() { h.wake.send() }

// ErrLogReplaced says that the log went back, or became another one, while
// control was running.
var ErrLogReplaced = errors.New("the database was replaced while control was running: start control again")

// position reads the newest entry. A log that went back since, or is another
// one, is not served any more, even when it catches up.
func (h *Hub) position(ctx context.Context) (Position, error) {
	h.mu.Lock()
	before := h.newest
	h.mu.Unlock()
	at, err := h.cfg.Log.Position(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(h.fault, ErrLogReplaced):
		return at, h.fault
	case ctx.Err() != nil: // says nothing about the log
		return at, ctx.Err()
	case err != nil:
		h.fault = err
		return at, err
	case before.Database != "" && !at.Covers(before):
		h.fault = ErrLogReplaced
		return at, h.fault
	}
	h.fault = nil
	if h.newest.Database == "" || at.Covers(h.newest) {
		h.newest = at
	}
	return at, nil
}

// Fault says why no replica gets a lease; nil: they do.
func (h *Hub) Fault() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault
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
	Revision   int64
	LeaseUntil time.Time
}

// Replicas lists the replicas that are connected or may still hold a lease.
func (h *Hub) Replicas() []ReplicaState {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]ReplicaState, 0, len(h.replicas))
	for _, name := range slices.Sorted(maps.Keys(h.replicas)) {
		if r := h.replicas[name]; !h.gone(r) {
			out = append(out, ReplicaState{name, r.links > 0, r.since, r.confirmed, r.revision, r.leaseUntil})
		}
	}
	return out
}

// gone reports whether a replica can accept nothing any more. Hub.mu is held.
func (h *Hub) gone(r *replica) bool {
	return r.resigned || r.links == 0 && !h.cfg.Now().Before(r.leaseUntil)
}

// Sweep strikes off the replicas that are gone.
func (h *Hub) Sweep(ctx context.Context) error {
	h.mu.Lock()
	var gone []string
	for name, r := range h.replicas {
		if h.gone(r) {
			gone = append(gone, name)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, name := range gone {
		errs = append(errs, h.strike(ctx, name))
	}
	return errors.Join(errs...)
}

// strike removes one replica, unless it has come back.
func (h *Hub) strike(ctx context.Context, name string) error {
	h.listing.Lock()
	defer h.listing.Unlock()
	h.mu.Lock()
	r := h.replicas[name]
	gone := r != nil && h.gone(r)
	if gone {
		delete(h.replicas, name)
	}
	h.mu.Unlock()
	if !gone {
		return nil
	}
	if err := h.cfg.Roster.Remove(ctx, name); err != nil {
		return fmt.Errorf("removing replica %s from the list: %w", name, err)
	}
	return nil
}
