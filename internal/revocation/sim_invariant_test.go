package revocation

import "time"

// What must hold. A machine that does not run sends no frames to a client; once
// it runs again it finds out within watchEvery, or Envoy does within its
// keepalive if the process stands still.

// grace is how long after its machine was stopped a stream may still live.
func (s *sim) grace(r *authz) time.Duration {
	if r.stopped > 0 {
		interval, timeout := Keepalive(s.lease)
		return interval + timeout + cutMost
	}
	return watchEvery + cutMost + 10*time.Millisecond
}

// settled reports whether a replica's machine runs, and has for so long that
// it must know how late it is.
func (s *sim) settled(r *authz) bool {
	return !r.n.m.down && s.now-r.n.m.since > s.grace(r)
}

// accepted is told each time that a replica accepts a request.
func (s *sim) accepted(c *check) {
	s.accepts++
	switch {
	case s.pardons(c.r, c.t):
	case c.t.ended <= c.began:
		s.fail("%s accepts token %d, whose end was answered %v before the request began",
			c.r.name, c.t.id, c.began-c.t.ended)
	case c.t.server.ended <= c.began:
		s.fail("%s accepts token %d, whose server's end was answered %v before the request began",
			c.r.name, c.t.id, c.began-c.t.server.ended)
	}
}

// lives is told when a stream's headers have gone out.
func (s *sim) lives(st *stream) {
	s.opened++
	if s.settled(st.r) {
		s.judgeStream(st)
	}
}

func (s *sim) judgeStream(st *stream) {
	switch {
	case !st.live || st.over || s.pardons(st.r, st.t):
	case st.cut && st.r.excused: // it has just heard of the new epoch
	case st.t.ended <= s.now:
		s.fail("a stream of token %d lives on %s, %v after its end was answered", st.t.id, st.r.name, s.now-st.t.ended)
	case st.t.server.ended <= s.now:
		s.fail("a stream of server %d lives on %s, %v after its end was answered", st.t.server.id, st.r.name, s.now-st.t.server.ended)
	case st.stray:
		s.fail("a stream of %s outlives the moment in which control stopped waiting for it", st.r.name)
	}
}

// judgeStreams looks at every stream that could send frames now.
func (s *sim) judgeStreams() {
	for _, n := range s.nodes {
		if r := n.replica; r != nil && s.settled(r) {
			for _, st := range r.streams {
				s.judgeStream(st)
			}
		}
	}
}

// answered is told when control answers that something is ended.
func (s *sim) answered(end *time.Duration) {
	s.answers++
	*end = s.now
	s.judgeStreams()
}

// givenUp is told when control stops waiting for a replica: unless it has the
// change, it must not accept, and no stream of it may live.
func (s *sim) givenUp(name string, change Change) {
	s.note("control stops waiting for %s", name)
	s.missing++
	r := s.replicas[name]
	if r == nil || r.dead || s.behind && r.excused || r.has(change) {
		return
	}
	if r.stopped == 0 && r.f.Alive() {
		s.fail("control stops waiting for %s, which holds a lease", name)
	}
	for _, st := range r.streams {
		st.stray = st.live
	}
	if s.settled(r) {
		for _, st := range r.streams {
			s.judgeStream(st)
		}
	}
}

// has reports whether a replica refuses what a change ends, confirmed or not.
func (r *authz) has(change Change) bool {
	if change.Seq > 0 {
		return r.f.Known().At.Seq >= change.Seq
	}
	return r.f.revision.Load() >= change.Revision
}

// lookAround judges the streams again and again, for machines that were
// stopped when something was answered.
func (s *sim) lookAround() {
	s.judgeStreams()
	s.event(nil, 200*time.Millisecond, s.lookAround)
}

// pardons reports whether a replica may accept what was ended before an older
// copy was put back: it, and its disk, had not seen more than the copy has, and
// it has not heard of the new epoch yet.
func (s *sim) pardons(r *authz, t *token) bool {
	return r.excused && (s.behind || r.f.Known().At.Epoch < s.epoch && (t.ended <= s.accepting || t.server.ended <= s.accepting))
}
