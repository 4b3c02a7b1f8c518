package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// name is one name in use.
//
//	made -> first lookup -> found -> timer -> lookup -> found ... -> idle: forgotten
//	                     -> error -> timer -> forgotten
type name struct {
	host  string
	ready chan struct{}         // closed after the first lookup, when found is set
	found atomic.Pointer[found] // the last good answer, or why there is none
	used  atomic.Int64          // when it was last asked for, Unix nanoseconds
	turn  atomic.Uint32         // rotates through the addresses
	timer *time.Timer           // next look at it; nil while the first lookup runs
}

type found struct {
	addrs []netip.Addr // not empty without err
	err   error
}

// stop ends the timer; a lookup in flight goes on and is then forgotten.
func (n *name) stop() {
	if n.timer != nil {
		n.timer.Stop()
	}
}

// refresh looks a name up, once, and sets the timer for the next time.
func (r *Resolver) refresh(n *name) {
	answer, err := r.ask(n.host)
	next := r.live(answer.TTL)
	last := n.found.Load()
	switch {
	case err == nil:
		n.found.Store(&found{addrs: prepare(answer.Addrs)})
	case last != nil && last.err == nil && !errors.Is(err, ErrNoSuchHost):
		next = r.conf.MinTTL // the last good answer stays
	default:
		n.found.Store(&found{err: err})
		next = negativeFor
	}
	if last == nil {
		close(n.ready)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names[n.host] == n { // not closed, not evicted
		n.timer = time.AfterFunc(next, func() { r.due(n) })
	}
}

// due is where a name's timer ends: it is looked up again, or forgotten when
// nobody asks for it or there was nothing to keep.
func (r *Resolver) due(n *name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names[n.host] != n {
		return
	}
	idle := time.Since(time.Unix(0, n.used.Load())) > r.conf.Idle
	if idle || n.found.Load().err != nil {
		delete(r.names, n.host)
		return
	}
	r.work.Go(func() { r.refresh(n) })
}

// ask does one lookup when there is room for it.
func (r *Resolver) ask(host string) (Answer, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-r.ctx.Done():
		return Answer{}, ErrClosed
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.conf.LookupTimeout)
	defer cancel()
	answer, err := r.conf.Lookup(ctx, host)
	switch {
	case err == nil && len(answer.Addrs) == 0:
		return Answer{}, ErrNoSuchHost
	case err == nil || errors.Is(err, ErrNoSuchHost):
		return answer, err
	case r.ctx.Err() != nil:
		return Answer{}, ErrClosed
	}
	return Answer{}, fmt.Errorf("%w: %w", ErrLookup, err)
}

// live returns how long an answer is used.
func (r *Resolver) live(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		ttl = unknownTTL
	}
	return min(max(ttl, r.conf.MinTTL), r.conf.MaxTTL)
}

// prepare returns the addresses in their plain form, each once. Of a name that
// is this machine only IPv4 addresses are kept where there are any: whoever
// listens on "localhost" mostly listens on 127.0.0.1 alone, and Envoy, which is
// given one address, cannot try the other.
func prepare(addrs []netip.Addr) []netip.Addr {
	plain := make([]netip.Addr, 0, len(addrs))
	loopback, v4 := true, false
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if !slices.Contains(plain, a) {
			plain = append(plain, a)
		}
		loopback, v4 = loopback && a.IsLoopback(), v4 || a.Is4()
	}
	if loopback && v4 {
		plain = slices.DeleteFunc(plain, netip.Addr.Is6)
	}
	return plain
}
