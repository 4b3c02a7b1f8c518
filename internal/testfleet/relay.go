package testfleet

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Relay passes connections on to one address and does to them, when told to,
// what networks do: it breaks them, refuses them, holds their bytes back, lets
// them drip.
type Relay struct {
	wire     *wire
	target   string
	life     context.Context // the test's
	up, down valve           // to the target, and from it

	mu      sync.Mutex // guards the rest
	refuses bool
	era     context.Context // ends with each cut, and another one begins
	end     context.CancelFunc
}

// NewRelay passes connections on to target ("ip:port") until the test ends.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	return newRelay(t, Config{}, target)
}

// NewSocketRelay listens on the unix socket of this path, and passes
// connections on to the unix socket target, until the test ends.
func NewSocketRelay(t testing.TB, path, target string) *Relay {
	t.Helper()
	return newRelay(t, Config{Listen: path}, target)
}

func newRelay(t testing.TB, c Config, target string) *Relay {
	t.Helper()
	r := &Relay{target: target, life: t.Context()}
	r.era, r.end = context.WithCancel(r.life)
	r.up.changed, r.down.changed = make(chan struct{}), make(chan struct{})
	r.wire = listen(t, c, r.serve)
	return r
}

// Addr is what to dial instead of the target.
func (r *Relay) Addr() string { return r.wire.addr() }

// Cut breaks every connection there is and says how many those were; what is
// held of them is lost. New ones are passed on as before.
func (r *Relay) Cut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	r.era, r.end = context.WithCancel(r.life)
	return r.wire.cut()
}

// Refuse ends every connection there is and every new one, until Heal.
func (r *Relay) Refuse() {
	r.mu.Lock()
	r.refuses = true
	r.mu.Unlock()
	r.Cut()
}

// Hold keeps the bytes of one direction or both back, from now on until Heal,
// and the ends of connections too: nobody learns that the other one is gone.
func (r *Relay) Hold(up, down bool) {
	if up {
		r.up.set(flow{held: true})
	}
	if down {
		r.down.set(flow{held: true})
	}
}

// Drip passes n bytes at once and then waits, in both directions, until Heal.
func (r *Relay) Drip(n int, wait time.Duration) {
	r.up.set(flow{most: n, wait: wait})
	r.down.set(flow{most: n, wait: wait})
}

// Heal passes everything on as at the beginning; what was held comes first.
func (r *Relay) Heal() {
	r.mu.Lock()
	r.refuses = false
	r.mu.Unlock()
	r.up.set(flow{})
	r.down.set(flow{})
}

func (r *Relay) serve(c *wireConn) {
	r.mu.Lock()
	refused, era := r.refuses, r.era
	r.mu.Unlock()
	if refused {
		return
	}
	onward, err := new(net.Dialer).DialContext(era, network(r.target), r.target)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(era)
	defer cancel()
	var passing sync.WaitGroup
	pass := func(v *valve, to io.Writer, from io.Reader) { // the first to end ends both
		v.pass(ctx, to, from)
		_ = c.Close()
		_ = onward.Close()
		cancel()
	}
	passing.Go(func() { pass(&r.up, onward, c.in) })
	passing.Go(func() { pass(&r.down, c, onward) })
	passing.Wait()
}

// network is that of an address: "ip:port", or the path of a unix socket.
func network(addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "unix"
	}
	return "tcp"
}
