//go:build e2e

package e2e

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestControlKilledInTheMiddle is kill -9 of control while it deletes, at the
// places that can be reached from outside. No answer was given, so nothing is
// promised yet; the next control carries out what was stored, and from its
// first answer on nothing is accepted.
func TestControlKilledInTheMiddle(t *testing.T) {
	p := startPause(t, 2)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"after the commit, before anything is applied", p.killedAfterCommit},
		{"after one confirmation, before the answer", p.killedBeforeAnswer},
		{"a lease given by the one that was killed", p.leaseOfTheDead},
		{"a second delete while the first one waits", p.deletedTwice},
	} {
		if !t.Run(test.name, test.run) {
			return // the next one needs a fleet that works
		}
	}
}

// killedAfterCommit freezes every replica, so that none can apply what it is
// sent, if it is sent at all: that differs from round to round.
func (p *pause) killedAfterCommit(t *testing.T) {
	rows := p.rows(t)
	for range 5 {
		victim := p.victim(t, 4)
		p.freeze(t, p.pairs[0].extauthz.pid(), p.pairs[1].extauthz.pid())
		unanswered := p.deleteUnanswered(t, victim)
		deadline := time.Now().Add(10 * time.Second)
		for rows(victim.id) > 0 { // without a pause: the kill shall come soon after
			if time.Now().After(deadline) {
				t.Fatal("the row is not gone")
			}
		}
		p.control.kill(t)
		<-unanswered
		p.thaw(t)
		p.control.start(t)
		p.goneEverywhere(t, victim)
	}
}

// killedBeforeAnswer freezes one replica: the other one applies and confirms,
// and the answer waits for the frozen one when control is killed.
func (p *pause) killedBeforeAnswer(t *testing.T) {
	victim := p.victim(t, 4)
	p.freeze(t, p.pairs[p.pair].extauthz.pid())
	unanswered := p.deleteUnanswered(t, victim)
	p.becomes(t, victim, 0, http.StatusUnauthorized)
	confirmed := p.up.order.Load()
	p.control.kill(t)
	<-unanswered
	p.control.start(t)
	p.thaw(t)
	p.goneEverywhere(t, victim)
	for _, a := range victim.after(confirmed) {
		if a.pair == 0 && a.status == http.StatusOK {
			t.Fatal("a replica that had applied the delete forgot it")
		}
	}
}

// leaseOfTheDead freezes a replica while an answer to its ping waits for it, a
// lease that it has not read. The control that gave it is killed, the next one
// deletes, and answers when that lease must be over: read late, it must not
// begin then.
func (p *pause) leaseOfTheDead(t *testing.T) {
	victim := p.victim(t, 4)
	freeze(t, p.control.pid())
	time.Sleep(1200 * time.Millisecond) // a ping each second: the next one waits for control
	p.frozen = []int{p.pairs[p.pair].extauthz.pid()}
	freeze(t, p.frozen[0])
	resumed := time.Now()
	p.control.signal(t, syscall.SIGCONT)
	eventually(t, 5*time.Second, "control answers the ping that waited", func() bool {
		return p.leaseUntil(t).After(resumed.Add(underLease - time.Millisecond))
	})
	p.control.kill(t)
	p.control.start(t)
	eventually(t, 20*time.Second, "control is back", func() bool { _, err := p.status(); return err == nil })
	a := p.change(t, p.up, http.MethodDelete, victim.tokenPath(), nil)
	if a.at.Before(resumed.Add(underLease)) || len(a.Missing) != 1 || !strings.HasPrefix(a.Missing[0], p.replica()) {
		t.Errorf("answered %v after the lease was given: %+v", a.at.Sub(resumed), a.carried)
	}
	p.resumed(t, victim, a)
	victim.cut(t, a)
}

// deleteUnanswered begins a delete that must not be answered. The channel is
// closed when that is known.
func (p *pause) deleteUnanswered(t *testing.T, victim *user) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var out any
		if status, err := p.api(t, http.MethodDelete, victim.tokenPath(), nil, &out); err == nil {
			t.Errorf("a control that was killed answered %d, %v", status, out)
		}
	}()
	return done
}

// rows counts the rows of a token in the database, which it only reads.
func (p *pause) rows(t *testing.T) func(id string) int {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(p.dir, "arbiter.db")+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return func(id string) (n int) {
		if err := db.QueryRowContext(context.Background(), "SELECT count(*) FROM access_tokens WHERE id = ?", id).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// goneEverywhere wants a token that was deleted without an answer to be refused
// by every pair within a lease of control's return, to stay so, and to be
// nowhere in the lists.
func (p *pause) goneEverywhere(t *testing.T, victim *user) {
	t.Helper()
	eventually(t, 20*time.Second, "control is back", func() bool { _, err := p.status(); return err == nil })
	back := time.Now()
	for pair := range p.pairs {
		p.becomes(t, victim, pair, http.StatusUnauthorized)
	}
	if took := time.Since(back); took > underLease {
		t.Errorf("refused everywhere %v after control was back, with a lease of %v", took, underLease)
	}
	refused := p.up.order.Load()
	for pair := range p.pairs {
		p.becomes(t, p.bystander, pair, http.StatusOK)
	}
	victim.burst(victim.fresh(t))
	victim.refused(t, refused, http.StatusUnauthorized, -31401)
	eventually(t, 2*time.Second, "its streams have ended", func() bool { return victim.live() == 0 })
	var list struct{ Items []struct{ ID string } }
	if _, err := p.api(t, http.MethodGet, "/servers/"+p.server+"/tokens", nil, &list); err != nil || len(list.Items) == 0 {
		t.Errorf("listing tokens: %v, %v", list, err)
	}
	for _, item := range list.Items {
		if item.ID == victim.id {
			t.Error("the deleted token is listed")
		}
	}
	if status, err := p.api(t, http.MethodDelete, victim.tokenPath(), nil, nil); status != http.StatusNotFound {
		t.Errorf("a second delete: status %d, %v", status, err)
	}
}

// deletedTwice: whoever repeats a delete that takes its time takes the second
// answer, that there is no such token, for the promise.
func (p *pause) deletedTwice(t *testing.T) {
	victim := p.victim(t, 4)
	p.freeze(t, p.pairs[p.pair].extauthz.pid())
	p.control.kill(t)
	p.control.start(t)
	eventually(t, 20*time.Second, "control is back", func() bool { _, err := p.status(); return err == nil })
	first := make(chan error, 1)
	go func() {
		_, err := p.tryChange(t, p.up, http.MethodDelete, victim.tokenPath(), nil)
		first <- err
	}()
	p.becomes(t, victim, 0, http.StatusUnauthorized)
	thawed := time.AfterFunc(500*time.Millisecond, func() { p.thaw(t) })
	defer thawed.Stop()
	stop := victim.hammer(t, p.pair, 24)
	defer stop()
	if status, err := p.api(t, http.MethodDelete, victim.tokenPath(), nil, nil); status != http.StatusNotFound {
		t.Errorf("a second delete: status %d, %v", status, err)
	}
	number := p.up.mark()
	p.becomes(t, victim, p.pair, http.StatusUnauthorized)
	stop()
	p.nothingSince(t, victim, number)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
