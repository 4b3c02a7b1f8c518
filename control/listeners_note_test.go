package control

import (
	"net/netip"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/xds"
)

// TestConnectedListenersStay: when there are very many, those that are gone are
// forgotten, and never one whose Envoy is connected.
func TestConnectedListenersStay(t *testing.T) {
	at := func(port int) xds.Replica {
		listen := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
		return xds.Replica{Role: xds.RoleEnvoy, Place: xds.Place{Listen: listen}}
	}
	l := newListeners([]netip.AddrPort{at(1).Place.Listen})
	now := time.Unix(1_800_000_000, 0)
	for port := 2; port < listenersMost+2; port++ {
		l.note([]xds.Replica{at(port), {Role: xds.RoleExtauthz}}, now)
	}
	if n := len(l.all()); n != listenersMost+1 {
		t.Errorf("%d listeners are kept", n)
	}
	connected := []xds.Replica{at(2), at(listenersMost + 2)}
	l.note(connected, now.Add(time.Second))
	if got := l.all(); len(got) != 3 || got[1] != connected[0].Place.Listen || got[2] != connected[1].Place.Listen {
		t.Errorf("the list is %v", got)
	}
}
