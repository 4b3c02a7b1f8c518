package control

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/arbiter-gateway/arbiter/xds"
)

// An Envoy that is not connected may still listen: it comes back to control
// within seconds, or has ended. Its listener stays one of ours for a while, but
// not when there are very many, which only a fault can make.
const (
	listenerStays = 10 * time.Minute
	listenersMost = 1024
)

// listeners are the addresses that no upstream may be: those of the
// configuration, and where Envoys listen, as they say when they connect. The
// goroutine that pushes owns it.
type listeners struct {
	always []netip.AddrPort
	seen   map[netip.AddrPort]time.Time // of Envoys: when one was connected last
	pushed []netip.AddrPort
}

func newListeners(always []netip.AddrPort) listeners {
	l := listeners{always: always, seen: map[netip.AddrPort]time.Time{}}
	l.pushed = l.all()
	return l
}

// note takes up who is connected now.
func (l *listeners) note(connected []xds.Replica, now time.Time) {
	here := map[netip.AddrPort]bool{}
	for _, r := range connected {
		if r.Role == xds.RoleEnvoy {
			here[r.Place.Listen], l.seen[r.Place.Listen] = true, now
		}
	}
	full := len(l.seen) > listenersMost
	maps.DeleteFunc(l.seen, func(at netip.AddrPort, last time.Time) bool {
		return !here[at] && (full || now.Sub(last) > listenerStays)
	})
}

// all are the listeners in order, each once.
func (l *listeners) all() []netip.AddrPort {
	out := slices.AppendSeq(slices.Clone(l.always), maps.Keys(l.seen))
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// entered is called when an Envoy has connected.
func (f *feed) entered() {
	select {
	case f.envoys <- struct{}{}:
	default: // it is going to look anyway
	}
}

// pushListeners tells every extauthz where Envoys listen now. It belongs to no
// revision of the store: the settings go out again under the last one.
func (f *feed) pushListeners() error {
	f.listeners.note(f.xds.Replicas(), f.cfg.Now())
	all := f.listeners.all()
	if slices.Equal(all, f.listeners.pushed) {
		return nil
	}
	err := f.xds.SetFleet(f.at(), []xds.Resource{f.settings()}, nil)
	if err == nil {
		f.listeners.pushed = all
	}
	return err
}

// settings are the gateway's, as every extauthz is told them.
func (f *feed) settings() xds.Resource {
	return xds.Resource{Name: xds.Name{Type: xds.TypeGateway, Name: "gateway"}, Body: f.gateway()}
}
