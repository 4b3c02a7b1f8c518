package revocation

import (
	"io"
	"time"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// network is what lies between a replica's machine and control.
type network struct {
	parted bool
	slow   time.Duration // added to every message
	held   []*wire       // wires with messages that wait for the partition to end
}

// delay is how long something small takes: mostly next to nothing.
func (s *sim) delay() time.Duration {
	switch n := s.pick(100); {
	case n == 0:
		return s.upTo(300 * time.Millisecond)
	case n < 30:
		return s.upTo(20 * time.Millisecond)
	}
	return s.upTo(500 * time.Microsecond)
}

// wire is one direction of a stream: in order, nothing lost but its end.
type wire struct {
	s       *sim
	net     *network
	waiting []any
	last    time.Duration
	cut     bool
	arrive  func(any)
}

func (w *wire) send(m any) {
	if w.cut {
		return
	}
	w.waiting = append(w.waiting, m)
	if w.net.parted {
		w.net.held = append(w.net.held, w)
		return
	}
	w.carry()
}

// carry brings the message that waits longest, once.
func (w *wire) carry() {
	w.last = max(w.last, w.s.now+w.s.delay()+w.net.slow)
	w.s.event(nil, w.last-w.s.now, func() {
		if w.cut || len(w.waiting) == 0 {
			return
		}
		m := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.arrive(m)
	})
}

func (n *network) heal() {
	n.parted = false
	for _, w := range n.held {
		w.carry()
	}
	n.held = nil
}

// hurry delivers what is on its way.
func (w *wire) hurry() {
	w.last = w.s.now
	for range w.waiting {
		w.carry()
	}
}

// conn is one stream between a replica and control.
type conn struct {
	s             *sim
	r             *authz
	c             *control
	end           *linkEnd
	up, down      *wire
	replicaClosed bool
	controlClosed bool
}

func (s *sim) connect(r *authz, c *control) *conn {
	n := &conn{s: s, r: r, c: c}
	n.end = &linkEnd{c: c, conn: n}
	c.links = append(c.links, n.end)
	n.up = &wire{s: s, net: &r.n.net, arrive: func(m any) {
		n.end.in = append(n.end.in, m.(*pb.FromReplica))
		s.event(c.proc, s.delay()/4, n.end.received)
	}}
	n.down = &wire{s: s, net: &r.n.net, arrive: func(m any) {
		r.arrived(n, m.(*pb.ToReplica))
	}}
	return n
}

func (n *conn) sendUp(m *pb.FromReplica) error {
	if n.replicaClosed {
		return io.ErrClosedPipe
	}
	n.up.send(m)
	return nil
}

// news is when the other end learns that this one is gone: soon, or, behind a
// partition, when its keepalive finds out.
func (n *conn) news() time.Duration {
	if !n.s.healed && (n.r.n.net.parted || n.s.oneIn(8)) {
		return n.s.between(time.Second, 20*time.Second)
	}
	return n.s.delay()
}

// tellControl ends control's end.
func (n *conn) tellControl(after time.Duration) {
	n.s.event(n.c.proc, after, func() {
		n.controlClosed, n.up.cut = true, true
		if n.end.err == nil {
			n.end.err = io.EOF
		}
		if n.end.link == nil && !n.end.busy {
			n.end.over = true
		}
		n.end.soon()
	})
}

// tellReplica ends the replica's end.
func (n *conn) tellReplica(after time.Duration) {
	n.s.event(n.r.proc, after, func() {
		n.replicaClosed, n.down.cut = true, true
		n.r.lost(n)
	})
}

func (n *conn) closedByControl() {
	n.controlClosed, n.up.cut = true, true
	n.tellReplica(n.news())
}

func (n *conn) closedByReplica() {
	n.replicaClosed, n.down.cut = true, true
	n.tellControl(n.news())
}

// reset breaks the stream in the middle; each end learns it at its own time.
func (n *conn) reset() {
	n.tellControl(n.news())
	n.tellReplica(n.news())
}
