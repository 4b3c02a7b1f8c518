package revocation

import "time"

// The decision of a replica, as extauthz makes it: the credential cache and
// its flights are resolve.go's, the steps of a check are decide's and live's,
// and a stream is registered, judged and let go on as Guard does.

// credential is resolve.Credential.
type credential struct {
	t      *token
	memory Memory
}

// flight is one question to control that several checks may wait for.
type flight struct {
	waiting []func(credential, bool)
	over    bool
}

// check is one request.
type check struct {
	r      *authz
	t      *token
	began  time.Duration // when the client sent it
	memory Memory        // decision.began
	must   bool          // a valid request after every fault has healed
	opens  bool          // its answer is a live stream
	who    credential
}

// ask sends a request for a token to a node.
func (s *sim) ask(n *node, t *token, must bool) {
	r := n.replica
	if r == nil {
		if must {
			s.fail("node %d has no replica long after every fault healed", n.number)
		}
		return
	}
	c := &check{r: r, t: t, began: s.now, must: must, opens: s.oneIn(3)}
	s.event(r.proc, s.delay()/2, c.decide)
}

func (c *check) refuse(why string) {
	if c.must {
		c.r.s.fail("%s refuses valid token %d long after every fault healed: %s", c.r.name, c.t.id, why)
	}
}

func (c *check) later(do func()) { c.r.s.event(c.r.proc, c.r.s.delay(), do) }

// decide is Check up to what it has to ask for.
func (c *check) decide() {
	r := c.r
	if r.settings == nil || !r.f.Alive() {
		c.refuse("no lease")
		return
	}
	c.memory = r.f.Known().Remember(r.f.Instant())
	settings := r.settings
	r.resolve(c.t, func(who credential, found bool) {
		if !found {
			c.refuse("not resolved")
			return
		}
		if !r.judge(settings, who.t) {
			c.refuse("revoked")
			return
		}
		c.who = who
		c.later(c.finish)
	})
}

// finish is the end of decide: live, and how old the answer is.
func (c *check) finish() {
	r := c.r
	if !r.f.Alive() || !r.judge(r.settings, c.t) {
		c.refuse("not live at the end")
		return
	}
	if !r.f.Known().Holds(c.who.memory, r.f.Instant(), simCacheAge+simCheck) {
		c.refuse("stale")
		return
	}
	r.s.accepted(c)
	if c.opens && len(r.streams) < 12 {
		r.s.event(r.proc, r.s.between(0, 200*time.Millisecond), c.guard)
	}
}

func (r *authz) judge(in *settings, t *token) bool {
	known := r.f.Known()
	return !known.Has(t.hash) && !known.Has(t.server.hash) && t.server.id < len(in.refused) && !in.refused[t.server.id]
}

// resolve is Resolver.Token.
func (r *authz) resolve(t *token, then func(credential, bool)) {
	if who, ok := r.cache[t.id]; ok && r.f.Known().Holds(who.memory, r.f.Instant(), simCacheAge) {
		r.s.event(r.proc, r.s.delay()/4, func() { then(who, true) })
		return
	}
	if f := r.flights[t.id]; f != nil {
		f.waiting = append(f.waiting, then)
		return
	}
	f := &flight{waiting: []func(credential, bool){then}}
	r.flights[t.id] = f
	land := func(who credential, found bool) {
		if f.over {
			return
		}
		f.over = true
		delete(r.flights, t.id)
		if found {
			r.cache[t.id] = who
		}
		for _, then := range f.waiting {
			then(who, found)
		}
	}
	r.s.timer(r.proc, 2*time.Second, func() { land(credential{}, false) })
	r.request(f, t, 3, land)
}

// request is Resolver.ask: up to three times until the answer is new enough.
func (r *authz) request(f *flight, t *token, tries int, land func(credential, bool)) {
	if tries == 0 {
		land(credential{}, false)
		return
	}
	memory := r.f.Known().Remember(r.f.Instant())
	c := r.s.control
	if c == nil || c.dead || r.n.net.parted {
		r.s.event(r.proc, r.s.delay(), func() { land(credential{}, false) })
		return
	}
	r.s.event(c.proc, r.s.delay()+r.n.net.slow, func() {
		found, read := r.s.db.resolves(t), r.s.db.at // one transaction
		d := r.s.delay() + r.n.net.slow
		if r.s.oneIn(8) {
			d += r.s.upTo(1500 * time.Millisecond)
		}
		r.s.event(r.proc, d, func() {
			switch {
			case r.n.net.parted || f.over:
			case !found:
				land(credential{}, false)
			case !r.f.Known().Answers(read):
				r.request(f, t, tries-1, land)
			default:
				land(credential{t, memory}, true)
			}
		})
	})
}

// stream is a live answer: frames reach the client while it is live.
type stream struct {
	r     *authz
	t     *token
	live  bool
	cut   bool
	over  bool
	gone  chan struct{} // Envoy has let go of it
	stray bool          // lived when control stopped waiting for its replica
}

// guard registers the stream first, then judges it again, then lets it go on.
func (c *check) guard() {
	st := &stream{r: c.r, t: c.t, gone: make(chan struct{})}
	r := c.r
	r.streams = append(r.streams, st)
	c.later(func() {
		if !r.f.Alive() || !r.judge(r.settings, c.t) || !r.f.Known().Holds(c.memory, r.f.Instant(), simAnswer) {
			r.ended(st)
			return
		}
		c.later(func() {
			if st.cut || st.over {
				r.ended(st)
				return
			}
			st.live = true
			r.s.lives(st)
		})
	})
}

func (r *authz) ended(st *stream) {
	if st.over {
		return
	}
	st.over, st.live = true, false
	close(st.gone)
	for i, other := range r.streams {
		if other == st {
			r.streams = append(r.streams[:i:i], r.streams[i+1:]...)
			break
		}
	}
}

// cut is streams.end: it ends the streams of some keys and waits until Envoy
// has let go of them.
func (r *authz) cut(keys ...Key) []int64 {
	counts := make([]int64, len(keys))
	var found []*stream
	for i, key := range keys {
		for _, st := range r.streams {
			if st.t.what == key || st.t.server.what == key {
				counts[i]++
				found = append(found, st)
			}
		}
	}
	r.end(found)
	return counts
}

func (r *authz) cutAll() {
	r.s.note("%s cuts all %d streams", r.name, len(r.streams))
	r.end(append([]*stream(nil), r.streams...))
}

func (r *authz) end(found []*stream) {
	for _, st := range found {
		if !st.cut {
			st.cut = true
			r.s.timer(r.n.m.envoy, r.s.cutTime(), func() { r.ended(st) })
		}
	}
	for _, st := range found {
		if !st.over {
			r.s.waitFor(st.gone, cutMost)
		}
	}
}

// cutMost is the longest that an Envoy which answers takes to end a stream.
const cutMost = 500 * time.Millisecond

func (s *sim) cutTime() time.Duration {
	if s.oneIn(10) {
		return s.upTo(cutMost)
	}
	return s.upTo(20 * time.Millisecond)
}

// frozen is what Envoy's keepalive does about a process that does not answer.
func (n *node) frozen(r *authz) {
	interval, timeout := Keepalive(n.s.lease)
	stops := r.stops
	n.s.timer(n.m.envoy, n.s.upTo(interval)+timeout, func() {
		if r.dead || r.stops != stops {
			return
		}
		n.s.note("Envoy gives %s up", r.name)
		for _, st := range append([]*stream(nil), r.streams...) {
			r.ended(st)
		}
	})
}
