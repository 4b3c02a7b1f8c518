package revocation

import (
	"context"
	"fmt"
	"io"
	"time"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// control is one life of the control process: a real Hub, and what serve.go
// and control itself do around it.
type control struct {
	*proc
	number int
	hub    *Hub
	links  []*linkEnd
	pushed []push // revisions of the settings, newest last
}

type push struct {
	settings *settings
	at       time.Duration
}

// linkEnd is Hub.Serve for one stream.
type linkEnd struct {
	c       *control
	conn    *conn
	link    *link
	hello   *pb.Hello
	in      []*pb.FromReplica
	pings   []int64 // at most one, as in Serve's channel
	blocked int64   // a ping that does not fit
	err     error   // what receiving ended with
	wake    <-chan struct{}
	busy    bool
	over    bool
}

// startControl begins another life: it reads its database, then serves.
func (s *sim) startControl() {
	s.controls++
	c := &control{proc: s.newProc(s.machine, fmt.Sprint("control", s.controls)), number: s.controls}
	c.pushed = []push{{s.db.settings(), s.now}}
	now := func() time.Time { return bigBang.Add(s.machine.monotonic()) }
	c.hub = NewHub(HubConfig{
		Log: disk{s}, Roster: disk{s}, Listed: s.db.roster, Lease: s.lease, Now: now,
		Pushed: c.newest, Due: c.due, Grace: s.lease / 3,
	})
	s.control = c
	s.note("%s starts at seq %d, epoch %d, knows %d replicas", c.name, s.db.at.Seq, s.db.at.Epoch, len(s.db.roster))
	s.timer(c.proc, 0, c.keepHouse)
}

func (c *control) newest() int64 { return c.pushed[len(c.pushed)-1].settings.revision }

func (c *control) due() int64 {
	for i := len(c.pushed) - 1; i > 0; i-- {
		if c.s.now-c.pushed[i].at > c.s.lease/3 {
			return c.pushed[i].settings.revision
		}
	}
	return c.pushed[0].settings.revision
}

// wall is the time that entries are dropped by.
func (s *sim) wall() time.Time { return bigBang.Add(s.now + s.machine.wall) }

func (c *control) keepHouse() {
	c.s.run(c.proc, func() {
		c.lockListing()
		if err := c.hub.Sweep(context.Background()); err != nil {
			c.s.fail("sweep: %v", err)
		}
		if c.s.oneIn(2) {
			c.s.db.drop(c.s.wall())
		}
		c.s.timer(c.proc, c.s.between(time.Second, 5*time.Second), c.keepHouse)
	})
}

// lockListing waits as Hub.listing would make a goroutine wait.
func (c *control) lockListing() {
	for !c.hub.listing.TryLock() {
		c.s.wait(time.Millisecond)
	}
	c.hub.listing.Unlock()
}

// push makes the newest settings the ones that replicas are sent.
func (c *control) push() {
	if c.newest() < c.s.db.revision {
		c.pushed = append(c.pushed, push{c.s.db.settings(), c.s.now})
	}
}

// received takes what has arrived, as link.receive does.
func (e *linkEnd) received() {
	for len(e.in) > 0 && e.blocked == 0 && e.err == nil && !e.over {
		if e.link == nil {
			if e.hello == nil {
				e.hello = e.in[0].GetHello()
				e.in = e.in[1:]
				e.busy = true
				e.c.s.run(e.c.proc, e.begin)
			}
			return
		}
		in := e.in[0]
		e.in = e.in[1:]
		ping, err := e.link.heard(in)
		switch {
		case err != nil:
			e.c.s.note("%s does not believe %s: %v", e.c.name, e.conn.r.name, err)
			e.err = err
		case ping == 0:
		case len(e.pings) == 0:
			e.pings = append(e.pings, ping)
		default:
			e.blocked = ping
		}
	}
	e.soon()
}

func (e *linkEnd) soon() { e.c.s.event(e.c.proc, e.c.s.delay(), e.serve) }

// begin is Serve up to its loop.
func (e *linkEnd) begin() {
	ctx, h := context.Background(), e.c.hub
	e.c.lockListing()
	l, err := h.join(ctx, e.hello, e.send)
	if err != nil {
		e.finish(err)
		return
	}
	e.link = l
	e.c.s.event(e.c.proc, 0, e.received)
	e.wake, _ = h.wake.listen()
	e.done(l.start(ctx, e.hello))
}

// done ends one turn of the loop.
func (e *linkEnd) done(err error) {
	e.busy = false
	if err != nil {
		e.finish(err)
		return
	}
	if len(e.pings) > 0 || e.err != nil || len(e.wake) > 0 {
		e.soon()
	}
}

// serve is one turn of link.serve.
func (e *linkEnd) serve() {
	if e.busy || e.over || e.link == nil {
		return
	}
	var ready []func() error
	if e.err != nil {
		ready = append(ready, func() error { return e.err })
	}
	if len(e.pings) > 0 {
		ready = append(ready, e.pong)
	}
	if len(e.wake) > 0 {
		ready = append(ready, func() error {
			<-e.wake
			return e.link.bring(context.Background())
		})
	}
	if len(ready) == 0 {
		return
	}
	turn := ready[e.c.s.pick(len(ready))]
	e.busy = true
	e.c.s.run(e.c.proc, func() { e.done(turn()) })
}

func (e *linkEnd) pong() error {
	number := e.pings[0]
	e.pings = e.pings[:0]
	if e.blocked > 0 {
		e.pings, e.blocked = append(e.pings, e.blocked), 0
		e.c.s.event(e.c.proc, 0, e.received)
	}
	return e.link.pong(context.Background(), number)
}

func (e *linkEnd) send(m *pb.ToReplica) error {
	if e.over || e.conn.controlClosed {
		return io.ErrClosedPipe
	}
	e.conn.down.send(m)
	return nil
}

// finish is the end of Serve.
func (e *linkEnd) finish(err error) {
	if e.over {
		return
	}
	e.over = true
	if e.link != nil {
		e.link.leave()
	}
	e.c.s.note("%s: stream of %s ends: %v", e.c.name, e.conn.r.name, err)
	e.conn.closedByControl()
}

// wakeAll has every stream look at its wake, a little later.
func (c *control) wakeAll() {
	c.hub.Wake()
	for _, e := range c.links {
		if !e.over {
			e.soon()
		}
	}
}

// confirmed is Hub.Confirmed in virtual time, with what must hold when it says
// that a replica can accept nothing any more.
func (c *control) confirmed(change Change) {
	c.wakeAll()
	w := c.hub.list(change)
	given := map[string]bool{}
	for {
		changed, next := c.hub.settle(w)
		for _, name := range w.result.Missing {
			if !given[name] {
				given[name] = true
				c.s.givenUp(name, change)
			}
		}
		if len(w.open) == 0 {
			return
		}
		c.s.waitFor(changed, next.Sub(c.hub.cfg.Now()))
	}
}
