//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestFaultKilledAroundADelete is kill -9 in the two moments that count: when the
// delete is stored and nobody was told, and when it is carried out and nobody
// has said so.
func TestFaultKilledAroundADelete(t *testing.T) {
	a := startAround(t)
	for _, row := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"control between commit and push", a.controlBeforePush},
		{"control between apply and confirm", a.controlBeforeConfirm},
		{"extauthz between apply and confirm", a.extauthzBeforeConfirm},
	} {
		if !t.Run(row.name, row.run) {
			return
		}
		a.awaitReady(t)
	}
}

// controlBeforePush: the next control tells what its predecessor has stored.
func (a *around) controlBeforePush(t *testing.T) {
	d := a.doom(t)
	for _, link := range a.relays {
		link.Hold(false, true)
	}
	a.delete(d)
	eventually(t, chaosLease/2, "the delete is stored", func() bool { return !a.listed(t, d.id) })
	d.unanswered(t)
	a.control.kill(t)
	if got := <-d.deleted; got.err == nil {
		t.Errorf("a control that was killed answered: %+v", got)
	}
	for _, link := range a.relays {
		link.Cut() // what was held is lost
		link.Heal()
	}
	a.control.start(t)
	for i, p := range a.pairs {
		eventually(t, 2*chaosLease, fmt.Sprintf("pair %d is told", i+1), func() bool { return a.status401(t, p, d.value) })
	}
	a.asks(t, d)
	a.works(t)
	d.ends(t)
}

// listed reports whether control still knows a token.
func (a *around) listed(t *testing.T, id string) bool {
	t.Helper()
	all := a.mustAsk(t, "GET", "/servers/"+a.server+"/tokens?limit=200", "", 200)
	return strings.Contains(fmt.Sprint(all["items"]), id)
}

// applied deletes a token whose confirmations do not arrive, and returns when
// each pair applies it.
func (a *around) applied(t *testing.T) *doomed {
	t.Helper()
	d := a.doom(t)
	for _, link := range a.relays {
		link.Hold(true, false)
	}
	a.delete(d)
	for i, p := range a.pairs {
		eventually(t, chaosLease/2, fmt.Sprintf("pair %d has the entry", i+1), func() bool { return a.status401(t, p, d.value) })
	}
	d.unanswered(t)
	a.asks(t, d)
	return d
}

func (a *around) controlBeforeConfirm(t *testing.T) {
	d := a.applied(t)
	a.control.kill(t)
	if got := <-d.deleted; got.err == nil {
		t.Errorf("a control that was killed answered: %+v", got)
	}
	for _, link := range a.relays {
		link.Heal()
	}
	a.control.start(t)
	a.works(t)
	d.ends(t)
}

// extauthzBeforeConfirm: who confirmed nothing is missing, also when its
// successor is there.
func (a *around) extauthzBeforeConfirm(t *testing.T) {
	d := a.applied(t)
	a.pairs[1].extauthz.kill(t)
	a.relays[1].Cut() // its confirmation is lost
	a.pairs[1].extauthz.start(t)
	for _, link := range a.relays {
		link.Heal()
	}
	d.answer(t, 1, 1)
	a.works(t)
	d.ends(t)
}
