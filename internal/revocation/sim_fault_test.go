package revocation

import "time"

// faults of the world. Each simulation has some of them, so that rare ones meet.
const (
	faultPause = iota
	faultKill
	faultSleep
	faultStep
	faultPart
	faultSlow
	faultReset
	faultHalfOpen
	faultControlKill
	faultControlPause
	faultControlStep
	faultRestore
	faultControlSleep
	faultSettings
	faults
)

// trouble is what goes wrong next.
func (s *sim) trouble() {
	if s.healed {
		return
	}
	s.event(nil, s.upTo(s.unrest), s.trouble)
	s.mischief()
}

// mischief is something that goes wrong now. It likes the moment in which a
// delete is committed.
func (s *sim) mischief() {
	fault := s.pick(faults)
	if s.enabled&(1<<fault) == 0 || s.healed {
		return
	}
	n := s.nodes[s.pick(len(s.nodes))]
	switch fault {
	case faultPause:
		s.pause(n)
	case faultKill:
		s.restart(n)
	case faultSleep:
		s.sleepMachine(n.m, !n.m.sets && s.oneIn(2))
	case faultStep:
		if n.m.sets {
			n.m.wall += s.jump()
			s.note("wall clock of node %d is set: %v off", n.number, n.m.wall)
		}
	case faultPart:
		s.part(n)
	case faultSlow:
		n.net.slow = s.upTo(s.length())
		s.event(nil, s.length(), func() { n.net.slow = 0 })
	case faultSettings: // their stream hangs, or it refuses them
		n.stale = true
		s.note("node %d gets no settings", n.number)
		s.event(nil, s.length(), func() { n.stale = false })
	case faultReset, faultHalfOpen:
		s.breakStream(n, fault == faultHalfOpen)
	default:
		s.troubleControl(fault)
	}
}

func (s *sim) troubleControl(fault int) {
	c := s.control
	switch {
	case fault == faultControlStep:
		s.machine.wall += s.jump()
		s.note("control's wall clock is set: %v off", s.machine.wall)
		if s.oneIn(2) && c != nil && !c.dead {
			s.db.drop(s.wall()) // just when housekeeping comes by
		}
	case c == nil || c.dead:
	case fault == faultControlKill && !s.behind:
		s.killControl()
		s.event(nil, s.upTo(s.length()), func() {
			if s.control.dead && !s.behind {
				s.startControl()
			}
		})
	case fault == faultControlPause && c.stopped == 0:
		c.stop()
		s.note("control is stopped")
		s.event(nil, s.length(), func() { s.contControl(c) })
	case fault == faultControlSleep && c.stopped == 0:
		s.sleepMachine(s.machine, false)
	case fault == faultRestore:
		s.restore()
	}
}

func (s *sim) contControl(c *control) {
	if c.stopped > 0 && !s.machine.down && !c.dead {
		c.cont()
		s.note("control goes on")
	}
}

// killControl is kill -9: its streams break, its tasks end where they are.
func (s *sim) killControl() {
	c := s.control
	if c == nil || c.dead {
		return
	}
	s.note("%s is killed", c.name)
	if s.machine.down {
		s.machine.awake()
	}
	c.kill()
	s.ambush = nil
	s.pending = 0
	for _, sv := range s.servers {
		sv.busy = false
	}
	for _, e := range c.links {
		if !e.over {
			e.conn.closedByControl()
		}
	}
}

// length is how long a fault lasts.
func (s *sim) length() time.Duration {
	switch s.pick(3) {
	case 0:
		return s.upTo(500 * time.Millisecond)
	case 1:
		return s.upTo(s.lease)
	}
	return s.upTo(2*s.lease + 5*time.Second)
}

// jump is how far somebody sets a clock.
func (s *sim) jump() time.Duration {
	d := s.upTo([]time.Duration{time.Second, 20 * time.Second, time.Hour}[s.pick(3)])
	if s.oneIn(2) {
		return -d
	}
	return d
}

func (s *sim) pause(n *node) {
	r := n.replica
	if r == nil || r.paused || n.m.down {
		return
	}
	r.paused = true
	r.stop()
	r.stops++
	s.note("%s is stopped", r.name)
	n.frozen(r)
	s.event(nil, s.length(), func() { s.goOn(r) })
}

func (s *sim) goOn(r *authz) {
	if r.paused && !r.dead {
		r.paused = false
		r.stops++
		r.cont()
		s.note("%s goes on", r.name)
	}
}

func (s *sim) restart(n *node) {
	old := n.replica
	if s.oneIn(2) {
		n.resign()
	} else {
		n.kill()
	}
	if s.oneIn(10) {
		n.seen = Position{} // on another machine
	}
	s.event(nil, s.length()/2, func() {
		if n.replica == old {
			n.kill()
		}
		if n.replica == nil {
			n.start()
		}
	})
}

func (s *sim) sleepMachine(m *machine, freeze bool) {
	if m.down {
		return
	}
	m.sleep(freeze)
	s.note("machine of %s sleeps, frozen %v", m.name, freeze)
	d := s.length()
	if s.oneIn(2) { // just longer than the lease: on waking, all of it is there
		d = s.between(s.lease, s.lease+s.lease/2)
	}
	s.event(nil, d, func() { s.awake(m) })
}

func (s *sim) awake(m *machine) {
	if m.down {
		m.awake()
		s.note("machine of %s is awake", m.name)
	}
}

func (s *sim) part(n *node) {
	if n.net.parted {
		return
	}
	n.net.parted = true
	s.note("node %d is cut off", n.number)
	s.event(nil, s.length(), func() {
		if n.net.parted {
			n.net.heal()
			s.note("node %d is reachable", n.number)
		}
	})
	if r := n.replica; r != nil && r.conn != nil && s.oneIn(3) {
		r.conn.reset()
	}
}

func (s *sim) breakStream(n *node, half bool) {
	r := n.replica
	if r == nil || r.conn == nil {
		return
	}
	s.note("stream of %s breaks", r.name)
	switch {
	case !half:
		r.conn.reset()
	case s.oneIn(2):
		r.conn.closedByControl()
		r.conn.tellReplica(s.between(time.Second, 20*time.Second))
		r.conn.tellControl(0)
	default:
		r.conn.tellReplica(0)
		r.conn.tellControl(s.between(time.Second, 20*time.Second))
	}
}

// heal ends every fault. From here on all has to become well in bounded time.
func (s *sim) heal() {
	s.ambush = nil
	if s.behind { // until it is accepted
		s.healed = true
		s.event(nil, 100*time.Millisecond, s.heal)
		return
	}
	s.well = s.now + s.lease + s.lease/2 + 4*time.Second
	s.event(nil, s.well-s.now-3*time.Second, func() { s.quiet = true })
	s.event(nil, s.well-s.now, s.askAll)
	s.healed, s.stalls = true, 0
	s.note("every fault heals")
	s.awake(s.machine)
	if s.control.dead && !s.behind {
		s.startControl()
	}
	s.contControl(s.control)
	for _, n := range s.nodes {
		s.awake(n.m)
		n.net.heal()
		n.net.slow, n.stale = 0, false
		if n.replica == nil {
			n.start()
		}
		r := n.replica
		s.goOn(r)
		s.event(r.proc, 0, r.applySettings)
		if r.conn != nil {
			r.conn.up.hurry()
			r.conn.down.hurry()
			if r.conn.controlClosed {
				r.conn.tellReplica(0)
			}
		}
	}
	for _, e := range s.control.links {
		if e.conn.replicaClosed {
			e.conn.tellControl(0)
		}
	}
}
