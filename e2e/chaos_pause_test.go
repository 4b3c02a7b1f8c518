//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// around is two pairs apart, and a delete to which something happens.
type around struct {
	*apart
	server, good string
}

func startAround(t *testing.T) *around {
	t.Helper()
	a := &around{apart: startApart(t, 2, "ARBITER_LEASE="+chaosLease.String())}
	echo := testfleet.NewEcho(t, testfleet.Config{})
	a.server = a.addServer(t, echo.Origin(), echo.Origin())
	_, a.good = a.addToken(t, a.server)
	return a
}

// count is how many answers there were.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// doomed is a token that both pairs know, what asks with it, and the delete.
type doomed struct {
	id, value string
	asking    []*load // one per pair
	deleted   <-chan deleteAnswer
}

type deleteAnswer struct {
	status int
	told   map[string]any // of the revocation
	err    error
	took   time.Duration
}

func (a *around) doom(t *testing.T) *doomed {
	t.Helper()
	ids, values := a.tokens(t, a.server, 1)
	d := &doomed{id: ids[0], value: values[0]}
	for _, p := range a.pairs {
		p.expect(t, a.server, d.value, 200)
	}
	return d
}

// asks keeps asking both pairs with the token.
func (a *around) asks(t *testing.T, d *doomed) {
	for _, p := range a.pairs {
		d.asking = append(d.asking, p.load(t, call{path: "/servers/" + a.server + "/rpc", token: d.value, body: rpc("1", "ping", "")}))
	}
}

// delete sends the request and does not wait for its answer.
func (a *around) delete(d *doomed) {
	answered := make(chan deleteAnswer, 1)
	d.deleted = answered
	began := time.Now()
	go func() {
		status, body, err := a.gateway.ask("DELETE", "/servers/"+a.server+"/tokens/"+d.id, "")
		told, _ := body["revocation"].(map[string]any)
		answered <- deleteAnswer{status, told, err, time.Since(began)}
	}()
}

// answer wants the delete to be answered within two leases, with so many
// confirmations and so many replicas missing.
func (d *doomed) answer(t *testing.T, confirmed, missing int) deleteAnswer {
	t.Helper()
	select {
	case a := <-d.deleted:
		names, _ := a.told["missing"].([]any)
		if a.err != nil || a.status != 200 || a.told["replicas_confirmed"] != float64(confirmed) || len(names) != missing {
			t.Errorf("the delete: %+v; want %d confirmed, %d missing", a, confirmed, missing)
		}
		return a
	case <-time.After(3 * chaosLease):
		t.Fatal("the delete is not answered")
		return deleteAnswer{}
	}
}

// unanswered fails when the delete was answered already.
func (d *doomed) unanswered(t *testing.T) {
	t.Helper()
	select {
	case a := <-d.deleted:
		t.Fatalf("the delete was answered: %+v", a)
	default:
	}
}

// ends wants that nothing of the token was accepted, and stops asking.
func (d *doomed) ends(t *testing.T) {
	t.Helper()
	for i, asking := range d.asking {
		eventually(t, 2*chaosLease, fmt.Sprintf("pair %d says that the token has ended", i+1), func() bool { return asking.newest() == 401 })
		seen := asking.stop()
		if wrong := slices.IndexFunc(seen, func(o outcome) bool { return o.status == 200 }); wrong >= 0 {
			t.Errorf("pair %d accepted the deleted token, answer %d of %d", i+1, wrong, len(seen))
		}
	}
}

// works wants both pairs to accept the good token again, within two leases.
func (a *around) works(t *testing.T) {
	t.Helper()
	for i, p := range a.pairs {
		eventually(t, 2*chaosLease, fmt.Sprintf("pair %d works again", i+1), func() bool {
			got, err := p.try(t, call{path: "/servers/" + a.server + "/rpc", token: a.good, body: rpc("1", "ping", "")})
			return err == nil && got.status == 200
		})
	}
}

// TestFaultBufferedMessagesRenewNothing: what lay in a buffer, of the network or
// of a stopped control, while a delete was answered, gives no lease and accepts
// nothing when it comes. For a stopped extauthz see TestDeleteWithAPausedReplica.
func TestFaultBufferedMessagesRenewNothing(t *testing.T) {
	a := startAround(t)
	for _, row := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"answers to pings are held, then come one by one", a.heldDown},
		{"pings are held, then come one by one", a.heldUp},
		{"control is stopped after it got the delete", a.controlStopped},
		{"control is stopped, then gets a delete", a.stoppedControl},
	} {
		if !t.Run(row.name, row.run) {
			return // the next one needs a fleet that works
		}
		a.works(t)
	}
}

func (a *around) heldDown(t *testing.T) { a.held(t, false, true) }
func (a *around) heldUp(t *testing.T)   { a.held(t, true, false) }

// held keeps back what goes between control and the second pair while a delete
// is answered, and lets it come so slowly that each message arrives alone.
func (a *around) held(t *testing.T, up, down bool) {
	d, link := a.doom(t), a.relays[1]
	streams := a.pairs[1].live(t)
	streams.listen(t, a.server, d.value, 3)
	link.Hold(up, down)
	if !up {
		a.pinged(t) // so that answers that know nothing of the delete are on their way
	}
	a.delete(d)
	if got := d.answer(t, 1, 1); got.took < chaosLease/2 {
		t.Errorf("answered after %v, within the lease", got.took)
	}
	if open, _ := streams.counts(); open > 0 {
		t.Errorf("%d streams live after the answer", open)
	}
	a.asks(t, d)
	link.Drip(24, 20*time.Millisecond)
	eventually(t, 2*chaosLease, "the pair was asked often", func() bool { return d.asking[1].count() > 300 })
	link.Heal()
	a.works(t)
	d.ends(t)
}

// pinged returns when control has heard a ping of everybody's.
func (a *around) pinged(t *testing.T) {
	t.Helper()
	began := time.Now()
	eventually(t, chaosLease, "everybody pings", func() bool {
		s, err := a.status()
		for _, r := range s.Replicas {
			if !r.LeaseUntil.After(began.Add(chaosLease)) {
				return false
			}
		}
		return err == nil
	})
}

// controlStopped: it is stopped while it waits for a confirmation, so the
// entries are out, and its answer comes when it goes on.
func (a *around) controlStopped(t *testing.T) {
	d := a.doom(t)
	a.relays[1].Hold(true, false)
	a.delete(d)
	eventually(t, chaosLease, "the first pair has the entry", func() bool { return a.status401(t, a.pairs[0], d.value) })
	a.stopControl(t)
	a.relays[1].Heal()
	a.answered(t, d)
}

func (a *around) stoppedControl(t *testing.T) {
	d := a.doom(t)
	a.control.signal(t, syscall.SIGSTOP)
	a.delete(d)
	a.stopControl(t)
	a.answered(t, d)
}

// stopControl stops it for longer than a lease, and lets it go on.
func (a *around) stopControl(t *testing.T) {
	t.Helper()
	a.control.signal(t, syscall.SIGSTOP)
	good := call{path: "/servers/" + a.server + "/rpc", token: a.good, body: rpc("1", "ping", "")}
	for _, p := range a.pairs {
		eventually(t, 2*chaosLease, "nothing is decided without control", func() bool { return p.do(t, good).status == 503 })
	}
	a.control.signal(t, syscall.SIGCONT)
}

// answered takes the answer of whatever kind and wants it kept.
func (a *around) answered(t *testing.T, d *doomed) {
	t.Helper()
	got := <-d.deleted
	if got.err != nil || got.status != 200 {
		t.Fatalf("the delete: %+v", got)
	}
	a.asks(t, d)
	a.works(t)
	d.ends(t)
}

func (a *around) status401(t *testing.T, p *pair, token string) bool {
	t.Helper()
	return p.do(t, call{path: "/servers/" + a.server + "/rpc", token: token, body: rpc("1", "ping", "")}).status == 401
}
