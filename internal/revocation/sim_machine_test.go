package revocation

import "time"

// machine has the clocks. Time of the simulation is true time.
type machine struct {
	s      *sim
	name   string
	sets   bool          // somebody sets its wall clock; then its host does not freeze it
	boot   time.Duration // what CLOCK_BOOTTIME said at the start
	frozen time.Duration // and how much it has missed since, in freezes
	wall   time.Duration // how far the wall clock was set, in all
	ppm    int64         // how much too fast its quartz is
	slept  time.Duration // how much timers have missed, in suspends and freezes
	down   bool
	since  time.Duration // when it went down or came back
	freeze bool          // its host stops it; else it is suspended
	envoy  *proc         // its Envoy, which stops with it
	procs  []*proc
}

var bigBang = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (m *machine) drifted() time.Duration {
	return m.s.now + m.s.now/1e6*time.Duration(m.ppm)
}

// clock is the replica's Clock.
func (m *machine) clock() Instant {
	t := m.drifted()
	return Instant{Boot: m.boot + t - m.frozen, Wall: bigBang.Add(t + m.wall)}
}

// monotonic is what a clock says that stops in suspend. No product code reads
// it but what a plant puts there.
func (m *machine) monotonic() time.Duration { return m.drifted() - m.slept }

// proc is one process.
type proc struct {
	s       *sim
	m       *machine
	name    string
	dead    bool
	stopped int // by SIGSTOP and by its machine
	stops   int // how often by SIGSTOP
	backlog []event
	parked  []*worker
}

func (s *sim) newProc(m *machine, name string) *proc {
	p := &proc{s: s, m: m, name: name}
	if m.down {
		p.stopped = 1
	}
	m.procs = append(m.procs, p)
	return p
}

func (p *proc) stop() { p.stopped++ }

func (p *proc) cont() {
	if p.stopped--; p.stopped > 0 {
		return
	}
	for _, e := range p.backlog {
		if !e.timer {
			e.at = p.s.now + p.s.upTo(2*time.Millisecond)
		}
		p.s.push(e)
	}
	p.backlog = nil
}

// kill ends a process at whatever it is doing.
func (p *proc) kill() {
	p.dead = true
	for len(p.parked) > 0 {
		w := p.parked[0]
		w.killed = true
		p.s.resume(w)
	}
	for i, other := range p.m.procs {
		if other == p {
			p.m.procs = append(p.m.procs[:i:i], p.m.procs[i+1:]...)
			break
		}
	}
}

// sleep stops a whole machine: suspend, or a freeze by its host.
func (m *machine) sleep(freeze bool) {
	m.down, m.freeze, m.since = true, freeze, m.s.now
	for _, p := range m.procs {
		p.stop()
	}
}

func (m *machine) awake() {
	gone := m.s.now - m.since
	m.down, m.since = false, m.s.now
	m.slept += gone
	if m.freeze {
		m.frozen += gone
	}
	for _, p := range m.procs {
		p.cont()
	}
}
