package revocation

import (
	"fmt"
	"slices"
	"time"
)

// What administrators do: create, delete, disable, enable; back up, and put an
// older copy back.

func (s *sim) createToken() {
	t := &token{id: len(s.tokens), server: s.servers[s.pick(len(s.servers))], ended: never}
	t.what = Key{KindAccessToken, fmt.Sprint("t", t.id)}
	t.hash = t.what.Hash()
	s.tokens = append(s.tokens, t)
	s.db.tokens = append(s.db.tokens, true)
}

// valid lists the tokens that nobody has begun to end.
func (s *sim) valid() []*token {
	var out []*token
	for _, t := range s.tokens {
		if !t.doomed && !t.server.deleted && !t.server.busy && s.db.resolves(t) && !s.db.disabled[t.server.id] {
			out = append(out, t)
		}
	}
	return out
}

// act begins an admin's request: a task of control, which a restart kills.
func (s *sim) act(do func(c *control)) {
	c := s.control
	s.pending++
	s.event(c.proc, 0, func() {
		s.run(c.proc, func() {
			disk{s}.io()
			if !s.behind {
				do(c)
			}
			s.pending--
		})
	})
}

func (s *sim) deleteToken(t *token) {
	t.doomed = true
	s.act(func(c *control) {
		s.db.tokens[t.id] = false
		seq := s.db.append(t.what, s.wall(), simLife(s.lease))
		s.note("delete of token %d is committed as seq %d", t.id, seq)
		for s.oneIn(2) {
			s.event(nil, s.upTo(20*time.Millisecond), s.mischief)
		}
		disk{s}.io()
		t.journal = true
		disk{s}.io()
		c.confirmed(Change{Seq: seq, What: t.what})
		s.note("delete of token %d is answered", t.id)
		s.answered(&t.ended)
		s.probe(t)
	})
}

// probe asks for what was just ended, everywhere, at once and later.
func (s *sim) probe(t *token) {
	for _, n := range s.nodes {
		s.ask(n, t, false)
		for _, most := range []time.Duration{20 * time.Millisecond, s.lease, 2 * s.lease, 2 * simLife(s.lease)} {
			s.event(nil, s.upTo(most), func() { s.ask(n, t, false) })
		}
	}
}

// change is a revision of the settings: committed, pushed a little later.
func (s *sim) change(c *control, edit func()) (revision int64) {
	edit()
	s.db.revision++
	revision = s.db.revision
	s.timer(c.proc, s.upTo(300*time.Millisecond), c.push)
	return revision
}

// endServer disables a server, or deletes it.
func (s *sim) endServer(sv *server, deletes bool) {
	sv.busy = true
	s.act(func(c *control) {
		change := Change{What: sv.what}
		sv.deleted = sv.deleted || deletes
		change.Revision = s.change(c, func() {
			if deletes {
				s.db.deleted[sv.id] = true
				change.Seq = s.db.append(sv.what, s.wall(), simLife(s.lease))
			} else {
				s.db.disabled[sv.id] = true
			}
		})
		s.note("end of server %d is committed as revision %d, seq %d", sv.id, change.Revision, change.Seq)
		disk{s}.io()
		sv.journal = sv.journal || deletes
		for c.newest() < change.Revision {
			s.wait(10 * time.Millisecond)
		}
		c.confirmed(change)
		s.note("end of server %d is answered", sv.id)
		s.answered(&sv.ended)
		sv.busy = false
		for _, t := range s.tokens {
			if t.server == sv && s.oneIn(3) {
				s.probe(t)
			}
		}
	})
}

func (s *sim) enable(sv *server) {
	sv.busy = true
	s.act(func(c *control) {
		sv.ended = never
		s.change(c, func() { s.db.disabled[sv.id] = false })
		s.note("server %d is enabled", sv.id)
		sv.busy = false
	})
}

// work is what administrators and clients do next.
func (s *sim) work() {
	s.event(nil, s.upTo(s.pace), s.work)
	if c := s.control; c == nil || c.dead || s.behind || s.quiet {
		return
	}
	valid := s.valid()
	switch n := s.pick(12); {
	case len(valid) < 5:
		s.createToken()
	case n < 7:
		s.deleteToken(valid[s.pick(len(valid))])
	case n < 10:
		sv := s.servers[s.pick(len(s.servers))]
		switch {
		case sv.busy || sv.deleted:
		case s.db.disabled[sv.id]:
			s.enable(sv)
		default:
			s.endServer(sv, sv.id > 1 && s.oneIn(6))
		}
	default:
		s.createToken()
	}
}

// clients use what is valid, so that caches are warm and streams live.
func (s *sim) clients() {
	s.event(nil, s.upTo(s.pace/2), s.clients)
	n := s.nodes[s.pick(len(s.nodes))]
	if valid := s.valid(); len(valid) > 0 && !s.oneIn(4) {
		s.ask(n, valid[s.pick(len(valid))], false)
	} else if len(s.tokens) > 0 {
		s.ask(n, s.tokens[len(s.tokens)-1-s.pick(min(len(s.tokens), 12))], false)
	}
}

func (s *sim) backup() {
	if !s.behind && len(s.copies) < 4 {
		s.copies = append(s.copies, s.db.copy())
	}
	s.event(nil, s.upTo(25*time.Second), s.backup)
}

// restore puts a copy back. Control notices by its journal and serves nothing
// before the restore is accepted; or, without its journal, it serves what it
// has: then replicas have to notice, and nothing is written until it ends.
func (s *sim) restore() {
	if s.behind || s.ambush != nil || len(s.copies) == 0 {
		return
	}
	lost, copied := s.db, s.copies[s.pick(len(s.copies))].copy()
	live := s.oneIn(3)
	if live && s.oneIn(2) { // just between two reads
		s.ambush = func() { s.serveCopy(s.db, copied, true) }
		return
	}
	if !live {
		s.killControl()
	}
	s.note("the database is put back from seq %d to seq %d", lost.at.Seq, copied.at.Seq)
	if live || s.oneIn(2) {
		s.serveCopy(lost, copied, live)
		return
	}
	s.behind = true
	s.event(nil, s.upTo(2*s.lease), func() { s.acceptRestore(lost, copied) })
}

// serveCopy is a control that does not notice.
func (s *sim) serveCopy(lost, copied *database, live bool) {
	s.behind = true
	s.note("control serves a copy of seq %d", copied.at.Seq)
	s.db, s.forgetful = copied, true
	for _, n := range s.nodes {
		if n.replica != nil {
			s.excuse(n.replica)
		}
	}
	s.event(nil, s.between(time.Second, 2*s.lease), func() {
		s.killControl()
		s.acceptRestore(lost, copied)
	})
	if !live {
		s.event(nil, s.upTo(time.Second), s.startControl)
	}
}

// excuse notes that a replica cannot know that the copy is one: neither it nor
// its disk has seen more.
func (s *sim) excuse(r *authz) { r.excused = !s.db.at.Behind(r.f.seen) }

// lostReplicas stands in the roster for those who were listed after the copy
// was made.
const lostReplicas = "replicas of the lost time"

// acceptRestore is `arbiter store accept-restore`, and control's start.
func (s *sim) acceptRestore(lost, copied *database) {
	s.epoch++
	copied.at.Epoch = s.epoch
	copied.at.Seq = max(lost.at.Seq, copied.at.Seq)
	copied.oldest = copied.at.Seq
	copied.revision = max(lost.revision, copied.revision) + 1000
	copied.roster[lostReplicas] = s.lease
	var gone []*token
	for _, t := range s.tokens {
		switch {
		case t.id >= len(copied.tokens):
			copied.tokens = append(copied.tokens, false)
			t.doomed = true
			gone = append(gone, t)
		case t.journal && copied.tokens[t.id]:
			copied.tokens[t.id] = false
			copied.append(t.what, s.wall(), simLife(s.lease))
		case copied.tokens[t.id]:
			t.doomed, t.ended = false, never // nobody knows that it was ended, or it was in a copy only
		}
	}
	for _, sv := range s.servers {
		if sv.journal && !copied.deleted[sv.id] {
			copied.deleted[sv.id] = true
			copied.append(sv.what, s.wall(), simLife(s.lease))
		}
		sv.deleted, sv.busy = copied.deleted[sv.id], false
		if !sv.deleted && !copied.disabled[sv.id] {
			sv.ended = never
		}
	}
	s.db, s.behind, s.forgetful, s.accepting = copied, false, false, s.now
	s.note("the restore is accepted: epoch %d, seq %d", s.epoch, s.db.at.Seq)
	s.startControl()
	s.copies = slices.DeleteFunc(s.copies, func(d *database) bool { return d.at.Epoch < s.epoch && s.oneIn(2) })
	// What only the lost database knew is gone when the leases of its time are.
	epoch := s.epoch
	s.event(nil, s.lease, func() {
		if s.epoch != epoch {
			return // another copy may know them
		}
		for _, t := range gone {
			t.ended = min(t.ended, s.now)
			s.probe(t)
		}
	})
}
