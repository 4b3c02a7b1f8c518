package revocation

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// The simulation's ground: virtual time, one queue of events, one source of
// chance, machines with clocks, processes that can be stopped and killed. A
// task is a piece of product code that may wait in the middle; it runs as a
// coroutine, so that what happens next is always the queue's choice.

// event is something that happens at a time, to a process or to the world.
type event struct {
	at    time.Duration
	order int64
	p     *proc // nil: the world, which never stops
	timer bool  // runs on a clock that stops while the machine sleeps
	slept time.Duration
	do    func()
}

// queue is a binary heap of places in a slab of events.
type queue struct {
	heap   []place
	events []event
	free   []int
}

type place struct {
	at    time.Duration
	order int64
	index int
}

func (p *place) before(q *place) bool {
	return p.at < q.at || p.at == q.at && p.order < q.order
}

func (q *queue) push(e event) {
	at := place{e.at, e.order, len(q.events)}
	if n := len(q.free); n > 0 {
		at.index, q.free = q.free[n-1], q.free[:n-1]
		q.events[at.index] = e
	} else {
		q.events = append(q.events, e)
	}
	h := append(q.heap, at)
	i := len(h) - 1
	for i > 0 && h[i].before(&h[(i-1)/2]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
	q.heap = h
}

func (q *queue) pop() event {
	h := q.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h[child].before(&h[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	q.heap = h
	q.free = append(q.free, top.index)
	e := q.events[top.index]
	q.events[top.index].do = nil
	return e
}

// worker is a coroutine that runs one task after the other.
type worker struct {
	next   func() (struct{}, bool)
	yield  func(struct{}) bool
	job    func()
	p      *proc
	killed bool
}

// killed is what unwinds a task whose process was killed.
type killed struct{}

// pool keeps workers from one simulation to the next.
type pool struct{ idle []*worker }

func (o *pool) worker() *worker {
	if n := len(o.idle); n > 0 {
		w := o.idle[n-1]
		o.idle = o.idle[:n-1]
		return w
	}
	w := &worker{}
	w.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		w.yield = yield
		for {
			w.work()
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return w
}

func (w *worker) work() {
	defer func() {
		if fault := recover(); fault != nil && fault != (killed{}) {
			panic(fault)
		}
		w.job = nil
	}()
	w.job()
}

// run begins a task of a process.
func (s *sim) run(p *proc, job func()) {
	w := s.pool.worker()
	w.job, w.p, w.killed = job, p, false
	s.resume(w)
}

func (s *sim) resume(w *worker) {
	before := s.current
	s.current = w
	for i, other := range w.p.parked {
		if other == w {
			w.p.parked = append(w.p.parked[:i], w.p.parked[i+1:]...)
			break
		}
	}
	w.next()
	s.current = before
	if w.job == nil {
		s.pool.idle = append(s.pool.idle, w)
	}
}

// wait parks the task that runs, for a time by its machine's timers.
func (s *sim) wait(d time.Duration) {
	w := s.current
	s.timer(w.p, d, func() { s.resume(w) })
	s.park(w)
}

func (s *sim) park(w *worker) {
	w.p.parked = append(w.p.parked, w)
	if w.yield(struct{}{}); w.killed {
		panic(killed{})
	}
}

// waiter is a task that waits for a channel to be closed, or a time to come.
type waiter struct {
	w       *worker
	p       *proc
	changed <-chan struct{}
	done    bool
}

// waitFor parks the task until the channel is closed or the time is over.
func (s *sim) waitFor(changed <-chan struct{}, most time.Duration) {
	x := &waiter{w: s.current, p: s.current.p, changed: changed}
	wake := func() {
		if !x.done {
			x.done = true
			s.resume(x.w)
		}
	}
	s.waiters = append(s.waiters, x)
	s.timer(x.p, most, wake)
	s.park(x.w)
}

func (s *sim) look() {
	for i := 0; i < len(s.waiters); {
		x := s.waiters[i]
		ready := x.done || x.p.dead
		select {
		case <-x.changed:
			ready = true
		default:
		}
		if !ready {
			i++
			continue
		}
		s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
		if !x.done && !x.p.dead {
			s.event(x.p, s.upTo(time.Millisecond), func() {
				if !x.done {
					x.done = true
					s.resume(x.w)
				}
			})
		}
	}
}

func (s *sim) push(e event) {
	s.order++
	e.order = s.order
	s.queue.push(e)
}

// event happens to a process after a true time, or as soon as it runs again.
func (s *sim) event(p *proc, d time.Duration, do func()) {
	s.push(event{at: s.now + d, p: p, do: do})
}

// timer happens to a process after a time by its machine's timers.
func (s *sim) timer(p *proc, d time.Duration, do func()) {
	slept := p.m.slept
	if p.m.down {
		slept += s.now - p.m.since
	}
	s.push(event{at: s.now + max(d, 0), p: p, timer: true, slept: slept, do: do})
}

// step lets the next event happen.
func (s *sim) step() {
	e := s.queue.pop()
	s.now = max(s.now, e.at)
	if p := e.p; p != nil {
		switch {
		case p.dead:
			return
		case p.stopped > 0:
			p.backlog = append(p.backlog, e)
			return
		case e.timer && p.m.slept > e.slept:
			e.at, e.slept = e.at+p.m.slept-e.slept, p.m.slept
			if e.at > s.now {
				s.push(e)
				return
			}
		}
	}
	s.steps++
	e.do()
	s.look()
}

// upTo is a random time below most.
func (s *sim) upTo(most time.Duration) time.Duration {
	return time.Duration(s.chance.Int64N(int64(most)))
}

// between is a random time.
func (s *sim) between(least, most time.Duration) time.Duration { return least + s.upTo(most-least) }

// one in n.
func (s *sim) oneIn(n int) bool { return s.chance.IntN(n) == 0 }

func (s *sim) pick(n int) int { return s.chance.IntN(n) }

func newChance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4)) }

// note adds a line to the trace of a simulation that is run once more.
func (s *sim) note(format string, args ...any) {
	if s.tracing {
		s.trace = append(s.trace, fmt.Sprintf("%11.6f  ", s.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

// fail notes that an invariant does not hold.
func (s *sim) fail(format string, args ...any) {
	if s.fault == "" {
		s.fault = fmt.Sprintf(format, args...)
		s.note("VIOLATED: %s", s.fault)
	}
}
