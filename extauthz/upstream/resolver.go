package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Why there is no address. ErrRefused is the fourth reason.
var (
	ErrNoSuchHost = errors.New("no such host")
	ErrLookup     = errors.New("name could not be looked up")
	ErrClosed     = errors.New("resolver is closed")
)

// Answer is what a lookup found.
type Answer struct {
	Addrs []netip.Addr
	TTL   time.Duration // 0: not known
}

// Lookup finds all addresses of a name, IPv4 and IPv6. An error that is
// ErrNoSuchHost says that there are none; every other one that nobody could say.
// It must be safe for concurrent use and return soon after ctx is done.
type Lookup func(ctx context.Context, host string) (Answer, error)

// Config is what a Resolver is made from.
type Config struct {
	Networks func() *Networks // the rules as they are now; required. Without rules all is refused
	Lookup   Lookup           // default: DNS(nil)

	MinTTL        time.Duration // an answer lives no shorter; default 5 s
	MaxTTL        time.Duration // and no longer; default 5 min
	LookupTimeout time.Duration // for one lookup; default 5 s
	Idle          time.Duration // a name not asked for so long is forgotten; default 10 min
	MaxNames      int           // names kept; default 131,072
}

const (
	unknownTTL  = 30 * time.Second // for answers without a DNS message (/etc/hosts)
	negativeFor = 2 * time.Second  // a name without addresses is not asked again
	lookupsMost = 64               // lookups at the same time
)

// Resolver knows the addresses of upstreams. It is safe for concurrent use.
//
// The first request for a name waits for one lookup that all share. From then on
// the name is looked up again whenever its answer ends, without anybody waiting,
// as long as it is asked for. When such a lookup fails the last good answer
// stays, without limit; when it says that the name is gone, the answer ends.
type Resolver struct {
	conf  Config
	slots chan struct{} // one per lookup in flight

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // lookups

	// mu guards names and closed, each name's timer, and work.Add against Close.
	mu     sync.RWMutex
	names  map[string]*name
	closed bool
}

// New returns a Resolver. It has no goroutine until it is asked for a name.
func New(c Config) (*Resolver, error) {
	if c.Networks == nil {
		return nil, errors.New("resolver needs its networks")
	}
	if c.Lookup == nil {
		c.Lookup = DNS(nil)
	}
	c.MinTTL = orElse(c.MinTTL, 5*time.Second)
	c.MaxTTL = max(c.MinTTL, orElse(c.MaxTTL, 5*time.Minute))
	c.LookupTimeout = orElse(c.LookupTimeout, 5*time.Second)
	c.Idle = orElse(c.Idle, 10*time.Minute)
	c.MaxNames = orElse(c.MaxNames, 1<<17)
	ctx, cancel := context.WithCancel(context.Background())
	return &Resolver{
		conf:   c,
		slots:  make(chan struct{}, lookupsMost),
		ctx:    ctx,
		cancel: cancel,
		names:  make(map[string]*name),
	}, nil
}

func orElse[T int | time.Duration](value, byDefault T) T {
	if value > 0 {
		return value
	}
	return byDefault
}

// Run returns when ctx is done and all lookups have ended.
func (r *Resolver) Run(ctx context.Context) error {
	<-ctx.Done()
	r.Close()
	return nil
}

// Close ends all lookups and returns when they are gone. After it every answer
// is ErrClosed.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.closed = true
	for _, n := range r.names {
		n.stop()
	}
	clear(r.names)
	r.mu.Unlock()
	r.cancel()
	r.work.Wait()
}

// Pick returns an address of host that may be reached, another one each time.
// Host is as URL.Host returns it. The error is ErrRefused when host has only
// addresses that must not be reached, ErrNoSuchHost, ErrLookup, ErrClosed, or
// that of ctx.
func (r *Resolver) Pick(ctx context.Context, host string, port uint16) (netip.AddrPort, error) {
	addrs, start, err := r.addrs(ctx, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("resolving %s: %w", host, err)
	}
	rules := r.conf.Networks()
	for i := range addrs {
		target := netip.AddrPortFrom(addrs[(start+i)%len(addrs)], port)
		if err = rules.Check(target); err == nil {
			return target, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("resolving %s: %w", host, err)
}

// Contains reports whether addr is still an address of host and port, and may be
// reached. It waits for a lookup like Pick.
func (r *Resolver) Contains(ctx context.Context, host string, port uint16, addr netip.AddrPort) bool {
	if addr.Port() != port || r.conf.Networks().Check(addr) != nil {
		return false
	}
	addrs, _, err := r.addrs(ctx, host)
	return err == nil && slices.Contains(addrs, addr.Addr().Unmap())
}

// addrs returns the addresses of host, at least one, and where to begin.
func (r *Resolver) addrs(ctx context.Context, host string) ([]netip.Addr, int, error) {
	if literal, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{literal.Unmap()}, 0, nil
	}
	n, err := r.name(host)
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-n.ready:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	found := n.found.Load()
	if found.err != nil {
		return nil, 0, found.err
	}
	return found.addrs, int(n.turn.Add(1) % uint32(len(found.addrs))), nil
}

// name returns what is known of host, and begins a lookup when that is nothing.
func (r *Resolver) name(host string) (*name, error) {
	now := time.Now().UnixNano()
	r.mu.RLock()
	n, closed := r.names[host], r.closed
	r.mu.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	if n != nil {
		n.used.Store(now)
		return n, nil
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if n := r.names[host]; n != nil {
		n.used.Store(now)
		return n, nil
	}
	if len(r.names) >= r.conf.MaxNames {
		r.evict()
	}
	n = &name{host: host, ready: make(chan struct{})}
	n.used.Store(now)
	n.turn.Store(rand.Uint32()) // replicas do not all begin with the first
	r.names[host] = n
	r.work.Go(func() { r.refresh(n) })
	return n, nil
}

// evict forgets the longest unused of a few names, chosen at random as the map
// hands them out. The caller holds mu.
func (r *Resolver) evict() {
	const sample = 16
	var oldest *name
	seen := 0
	for _, n := range r.names {
		if oldest == nil || n.used.Load() < oldest.used.Load() {
			oldest = n
		}
		if seen++; seen == sample {
			break
		}
	}
	oldest.stop()
	delete(r.names, oldest.host)
}
