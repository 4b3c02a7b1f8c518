//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// underLease is the lease of the tests that wait for its end: the shortest there
// can be. A replica uses less of it, by what Envoy takes to find it frozen.
const underLease = 5 * time.Second

// pause is a fleet with a pair that is frozen, the last one.
type pause struct {
	*fleet
	up        *tally
	server    string
	bystander *user
	pair      int
	frozen    []int // processes
}

func startPause(t *testing.T, pairs int) *pause {
	t.Helper()
	f, up := startFleet(t, pairs, "ARBITER_LEASE="+underLease.String()), newTally(t)
	server := f.addServer(t, up.url, up.url)
	return &pause{fleet: f, up: up, server: server, bystander: f.addUser(t, up, server), pair: pairs - 1}
}

// TestDeleteWithAPausedReplica deletes while a replica is frozen. The answer
// waits for its lease and names it; what it had streams no more; and when it is
// let go on, with all that waited for it, it accepts nothing of the deleted
// token.
func TestDeleteWithAPausedReplica(t *testing.T) {
	p := startPause(t, 4)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"extauthz", p.extauthzAlone},
		{"extauthz and its Envoy", p.wholePair},
		{"its Envoy", p.envoyAlone},
		{"extauthz, and then control", p.controlToo},
	} {
		if !t.Run(test.name, test.run) {
			return // the next one needs a fleet that works
		}
	}
}

func (p *pause) extauthzAlone(t *testing.T) {
	victim := p.victim(t, 32)
	until := p.freeze(t, p.pairs[p.pair].extauthz.pid())
	a := p.change(t, p.up, http.MethodDelete, victim.tokenPath(), nil)
	p.answered(t, a, until, until)
	victim.cut(t, a)
	for _, s := range victim.opened() {
		if s.at.After(a.at) {
			t.Errorf("a stream of pair %d ended %v after the answer", s.pair+1, s.at.Sub(a.at))
		}
	}
	p.resumed(t, victim, a)
}

// wholePair freezes Envoy too: it cuts nothing meanwhile, and passes nothing on.
func (p *pause) wholePair(t *testing.T) {
	victim := p.victim(t, 32)
	until := p.freeze(t, envoyOf(p.pairs[p.pair].envoy.pid()), p.pairs[p.pair].extauthz.pid())
	a := p.change(t, p.up, http.MethodDelete, victim.tokenPath(), nil)
	p.answered(t, a, until, until)
	p.resumed(t, victim, a)
	p.cutWhenResumed(t, victim, a)
}

// envoyAlone freezes Envoy with an extauthz that confirms at once: whom it has
// cut the frozen one cannot have let go of.
func (p *pause) envoyAlone(t *testing.T) {
	victim := p.victim(t, 32)
	p.freeze(t, envoyOf(p.pairs[p.pair].envoy.pid()))
	a := p.change(t, p.up, http.MethodDelete, victim.tokenPath(), nil)
	if a.Confirmed != len(p.pairs) || a.StreamsEnded != 32 {
		t.Errorf("the answer says %+v", a.carried)
	}
	p.resumed(t, victim, a)
	p.cutWhenResumed(t, victim, a)
}

// cutWhenResumed wants the streams of an Envoy that was frozen to end when it is
// let go on, and those of the others to have ended by the answer. In between the
// one that was frozen passes on what has waited in its sockets: nobody can stop
// it sooner.
func (p *pause) cutWhenResumed(t *testing.T, victim *user, a answered) {
	t.Helper()
	eventually(t, 5*time.Second, "all streams end", func() bool { return victim.live() == 0 })
	passedOn := 0
	for _, s := range victim.opened() {
		switch late := s.newest.Load() > a.number; {
		case late && s.pair == p.pair:
			passedOn++
		case late:
			t.Errorf("a stream of pair %d, which was not frozen, brought what was said after the answer", s.pair+1)
		}
	}
	t.Logf("%d streams brought what was said after the answer", passedOn)
}

// controlToo freezes control while it waits, until nobody has a lease.
func (p *pause) controlToo(t *testing.T) {
	victim := p.victim(t, 32)
	until := p.freeze(t, p.pairs[p.pair].extauthz.pid())
	var (
		a       answered
		failed  error
		deleted = make(chan struct{})
	)
	go func() {
		defer close(deleted)
		a, failed = p.tryChange(t, p.up, http.MethodDelete, victim.tokenPath(), nil)
	}()
	p.becomes(t, victim, 0, http.StatusUnauthorized)
	p.control.signal(t, syscall.SIGSTOP)
	p.becomes(t, p.bystander, 0, http.StatusServiceUnavailable)
	p.control.signal(t, syscall.SIGCONT)
	resumed := time.Now()
	if <-deleted; failed != nil {
		t.Fatal(failed)
	}
	p.answered(t, a, until, later(until, resumed))
	victim.cut(t, a)
	p.resumed(t, victim, a)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// victim is a user whose token every pair knows, with streams on each.
func (p *pause) victim(t *testing.T, streams int) *user {
	t.Helper()
	p.awaitReady(t)
	for pair := range p.pairs {
		p.becomes(t, p.bystander, pair, http.StatusOK)
	}
	u := p.addUser(t, p.up, p.server)
	u.openMany(t, streams)
	u.burst(u.fresh(t))
	if rest := others(u.statuses(0, math.MaxInt64), http.StatusOK); len(rest) > 0 {
		t.Fatalf("before anything happened: %v", rest)
	}
	return u
}

// becomes waits for the status of a call on one pair.
func (p *pause) becomes(t *testing.T, u *user, pair, status int) {
	t.Helper()
	var last asked
	if !soon(30*time.Second, func() bool { last = u.ask(u.older[pair], pair, "/rpc"); return last.status == status }) {
		t.Fatalf("pair %d does not answer %d but %d", pair+1, status, last.status)
	}
}

// freeze stops processes of the last pair, returns when they have stopped, and
// says until when control takes that pair's extauthz for alive.
func (p *pause) freeze(t *testing.T, pids ...int) (until time.Time) {
	t.Helper()
	for _, pid := range pids {
		freeze(t, pid)
	}
	p.frozen = pids
	return p.leaseUntil(t)
}

// freeze stops one process until the test ends, or it is let go on before.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	eventually(t, 5*time.Second, "the process has stopped", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "T")
	})
}

// thaw lets the frozen go on.
func (p *pause) thaw(t *testing.T) {
	t.Helper()
	for _, pid := range p.frozen {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
}

// replica is the beginning of the last pair's name.
func (p *pause) replica() string { return fmt.Sprintf("extauthz-%d-", p.pair+1) }

func (p *pause) leaseUntil(t *testing.T) time.Time {
	t.Helper()
	s, err := p.status()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Replicas {
		if strings.HasPrefix(r.Name, p.replica()) {
			return r.LeaseUntil
		}
	}
	t.Fatalf("no replica %s: %+v", p.replica(), s.Replicas)
	return time.Time{}
}

// answered wants an answer that waited for the frozen replica's lease, not much
// longer than it had to, and names it.
func (p *pause) answered(t *testing.T, a answered, until, atMost time.Time) {
	t.Helper()
	const most = 4 * time.Second
	if a.at.Before(until) || a.at.After(atMost.Add(most)) {
		t.Errorf("answered %v after the replica's lease, it should be 0 to %v", a.at.Sub(until), atMost.Sub(until)+most)
	}
	if a.took < underLease/2 {
		t.Errorf("answered after %v with a lease of %v", a.took, underLease)
	}
	if a.Replicas != len(p.pairs) || a.Confirmed != len(p.pairs)-1 || len(a.Missing) != 1 || !strings.HasPrefix(a.Missing[0], p.replica()) {
		t.Errorf("the answer says %+v; %s was frozen", a.carried, p.replica())
	}
}

// resumed lets the frozen go on with many requests waiting for them, and wants
// that nothing of them is accepted, from the first one on.
func (p *pause) resumed(t *testing.T, victim *user, a answered) {
	t.Helper()
	stop := victim.hammer(t, p.pair, 24)
	defer stop()
	eventually(t, 10*time.Second, "requests wait for the frozen", func() bool { return victim.up.order.Load() > a.number+24 })
	p.thaw(t)
	p.becomes(t, p.bystander, p.pair, http.StatusOK)
	then := victim.up.order.Load()
	eventually(t, 20*time.Second, "the deleted token was tried at length", func() bool {
		return victim.statuses(then, math.MaxInt64)[http.StatusUnauthorized] >= 100
	})
	stop()
	victim.burst(victim.fresh(t))
	p.nothingSince(t, victim, a.number)
}

// nothingSince wants that no request was accepted that began after a number.
func (p *pause) nothingSince(t *testing.T, victim *user, number int64) {
	t.Helper()
	count := victim.statuses(number, math.MaxInt64)
	t.Logf("after the answer, by status: %v", count)
	if rest := others(count, 0, http.StatusUnauthorized, http.StatusServiceUnavailable); len(rest) > 0 {
		t.Errorf("accepted after the answer: %v", rest)
	}
	victim.unseen(t, number)
}
