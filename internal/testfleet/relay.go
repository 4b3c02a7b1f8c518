package testfleet

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Relay passes TCP connections on to one address and breaks them when told to.
type Relay struct {
	wire   *wire
	target string
	life   context.Context // the test's
}

// NewRelay passes connections on to target ("ip:port") until the test ends.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	r := &Relay{target: target, life: t.Context()}
	r.wire = listen(t, Config{}, r.serve)
	return r
}

// Addr is the "ip:port" to dial instead of the target.
func (r *Relay) Addr() string { return r.wire.addr() }

// Cut breaks every connection there is and says how many those were. New ones
// are passed on as before.
func (r *Relay) Cut() int { return r.wire.cut() }

func (r *Relay) serve(c *wireConn) {
	onward, err := new(net.Dialer).DialContext(r.life, "tcp", r.target)
	if err != nil {
		return
	}
	var passing sync.WaitGroup
	pass := func(to io.Writer, from io.Reader) { // the first to end ends both
		_, _ = io.Copy(to, from)
		_ = c.Close()
		_ = onward.Close()
	}
	passing.Go(func() { pass(onward, c.in) })
	passing.Go(func() { pass(c, onward) })
	passing.Wait()
}
