package revocation

import (
	"fmt"
	"log/slog"
	"time"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// node is a machine with an Envoy and, most of the time, a replica.
type node struct {
	s       *sim
	m       *machine
	net     network
	seen    Position // on its disk
	replica *authz
	number  int
	lives   int
	stale   bool // settings do not reach it
}

// authz is one life of an extauthz: a real Follower, and what run.go, the
// credential cache, Check and Guard do around it.
type authz struct {
	*proc
	n        *node
	f        *Follower
	conn     *conn
	session  *session
	inbox    []*pb.ToReplica
	ping     bool // a tick waits
	keep     bool
	busy     bool // in a turn of handle
	losing   bool // in the cut at a lease's end: who comes second waits for it
	wait     time.Duration
	alarm    int
	settings *settings
	source   int // number of the control that it has settings of
	applying bool
	paused   bool
	excused  bool // follows a copy, and cannot know
	pushed   *settings
	streams  []*stream
	cache    map[int]credential
	flights  map[int]*flight
}

func (n *node) start() {
	n.lives++
	r := &authz{
		proc: n.s.newProc(n.m, fmt.Sprintf("r%d.%d", n.number, n.lives)), n: n,
		wait: retryFirst, cache: map[int]credential{}, flights: map[int]*flight{},
	}
	r.f = NewFollower(FollowerConfig{
		Replica: r.name, Clock: n.m.clock, Slog: slog.New(slog.DiscardHandler),
		Cut: r.cut, CutAll: r.cutAll, Seen: n.seen, Saw: func(at Position) { n.seen = at },
	})
	n.replica = r
	if n.s.behind {
		n.s.excuse(r)
	}
	n.s.replicas[r.name] = r
	n.s.note("%s starts, has seen %v", r.name, n.seen)
	r.s.timer(r.proc, 0, r.connect)
	r.s.timer(r.proc, pingEvery, r.pingTick)
	r.s.timer(r.proc, keepEvery, r.keepTick)
	r.s.timer(r.proc, watchEvery, r.watchTick)
	r.s.timer(r.proc, 0, r.poll)
}

// kill ends the process; Envoy's streams to it break.
func (n *node) kill() {
	r := n.replica
	if r == nil {
		return
	}
	n.s.note("%s is killed", r.name)
	r.proc.kill()
	for _, st := range r.streams {
		n.s.event(n.m.envoy, n.s.upTo(5*time.Millisecond), func() { r.ended(st) })
	}
	if r.conn != nil {
		r.conn.closedByReplica()
	}
	n.replica = nil
}

// resign is what handle does when the process is told to stop, which it does a
// little later.
func (n *node) resign() {
	r := n.replica
	if r == nil || r.busy || r.losing || r.session == nil || r.stopped > 0 {
		n.kill()
		return
	}
	n.s.note("%s resigns", r.name)
	r.busy, r.losing = true, true // for good
	r.s.run(r.proc, func() {
		session, conn := r.session, r.conn
		if err := session.resign(); err == nil && r.conn == conn {
			conn.closedByReplica()
		}
		r.s.event(nil, r.s.upTo(resignWait), func() {
			if n.replica == r {
				n.kill()
			}
		})
	})
}

// connect is the start of follow.
func (r *authz) connect() {
	c := r.s.control
	if c == nil || c.dead || r.n.net.parted || r.busy {
		r.again()
		return
	}
	r.s.event(r.proc, 2*r.s.delay(), func() {
		if c.dead || r.busy {
			r.again()
			return
		}
		conn := r.s.connect(r, c)
		session, err := r.f.open(conn.sendUp)
		if err != nil {
			r.s.fail("open: %v", err)
		}
		r.conn, r.session, r.inbox = conn, session, nil
		r.s.note("%s connects", r.name)
	})
}

func (r *authz) again() {
	r.s.timer(r.proc, r.wait/2+r.s.upTo(r.wait/2), r.connect)
	r.wait = min(2*r.wait, retryMost)
}

// lost ends the session of a conn.
func (r *authz) lost(n *conn) {
	if r.conn != n {
		return
	}
	r.conn, r.session, r.inbox = nil, nil, nil
	r.again()
}

func (r *authz) arrived(n *conn, m *pb.ToReplica) {
	if r.conn == n {
		r.inbox = append(r.inbox, m)
		r.soon()
	}
}

func (r *authz) soon() { r.s.event(r.proc, r.s.delay()/4, r.handle) }

func (r *authz) pingTick() {
	r.ping = true
	r.handle()
	r.s.timer(r.proc, pingEvery, r.pingTick)
}

func (r *authz) keepTick() {
	r.keep = true
	r.handle()
	r.s.timer(r.proc, keepEvery, r.keepTick)
}

// handle is one turn of Follower.handle.
func (r *authz) handle() {
	if r.busy || r.session == nil {
		return
	}
	var ready [4]func(*session) error
	count := 0
	offer := func(turn func(*session) error) { ready[count] = turn; count++ }
	if r.ping {
		offer(func(s *session) error { r.ping = false; return s.ping() })
	}
	if r.keep {
		offer(func(*session) error { r.keep = false; r.f.keep(); return nil })
	}
	if len(r.f.ended.changed) > 0 {
		offer(func(s *session) error { <-r.f.ended.changed; return s.settings() })
	}
	if len(r.inbox) > 0 && !(r.losing && r.inbox[0].GetPong() != nil) {
		offer(r.hear)
	}
	if count == 0 {
		return
	}
	turn, session, conn := ready[r.s.pick(count)], r.session, r.conn
	r.busy = true
	r.s.run(r.proc, func() {
		err := turn(session)
		r.busy = false
		if err != nil && r.conn == conn {
			r.s.note("%s ends its stream: %v", r.name, err)
			conn.closedByReplica()
			r.lost(conn)
		}
		r.soonIfReady()
	})
}

func (r *authz) soonIfReady() {
	if len(r.inbox) > 0 || r.ping || r.keep || len(r.f.ended.changed) > 0 {
		r.soon()
	}
}

func (r *authz) hear(s *session) error {
	m := r.inbox[0]
	r.inbox = r.inbox[1:]
	if m.GetRevoked() != nil {
		r.s.note("%s hears seq %d, full %v", r.name, m.GetRevoked().GetSeq(), m.GetRevoked().GetFull())
		return s.heard(m)
	}
	// A pong may find the lease lost, and cut: who else looks waits for it.
	r.losing = true
	err := s.heard(m)
	r.losing = false
	select {
	case <-r.f.renewed:
		r.setAlarm()
	default:
	}
	return err
}

// watchTick and the alarm are Follower.watchLease.
func (r *authz) watchTick() {
	r.look()
	r.s.timer(r.proc, watchEvery, r.watchTick)
}

func (r *authz) setAlarm() {
	r.alarm++
	number := r.alarm
	held := r.f.lease.Load()
	if !held.held(r.f.cfg.Clock()) {
		return
	}
	elapsed, _ := r.f.cfg.Clock().since(held.begun)
	r.s.timer(r.proc, held.length-elapsed, func() {
		if number == r.alarm {
			r.look()
		}
	})
}

func (r *authz) look() {
	if r.losing {
		return
	}
	r.losing = true
	r.s.run(r.proc, func() {
		r.f.watch()
		r.losing = false
		r.soonIfReady()
	})
}

// poll takes the newest settings that control has pushed.
func (r *authz) poll() {
	r.s.timer(r.proc, r.s.between(20*time.Millisecond, 600*time.Millisecond), r.poll)
	c := r.s.control
	if c == nil || c.dead || c.stopped > 0 || r.n.net.parted || r.n.stale || r.s.forgetful || c.number < r.source {
		return
	}
	newest := c.pushed[len(c.pushed)-1].settings
	if r.pushed != nil && r.source == c.number && r.pushed.revision == newest.revision {
		return
	}
	r.pushed, r.source = newest, c.number
	r.s.event(r.proc, r.s.delay()+r.n.net.slow, r.applySettings)
}

// applySettings is Server.apply: swap, cut, then say so.
func (r *authz) applySettings() {
	if r.applying || r.pushed == r.settings {
		return
	}
	r.applying = true
	before, next := r.settings, r.pushed
	r.settings = next
	r.s.run(r.proc, func() {
		ended := map[Key]int64{}
		var keys []Key
		for i, refused := range next.refused {
			if refused && before != nil && (i >= len(before.refused) || !before.refused[i]) {
				keys = append(keys, r.s.servers[i].what)
			}
		}
		for i, streams := range r.cut(keys...) {
			ended[keys[i]] = streams
		}
		r.f.Settings(next.revision, ended)
		r.applying = false
		r.s.event(r.proc, 0, r.applySettings)
		r.soon()
	})
}
