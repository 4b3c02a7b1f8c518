package upstream_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
)

func TestRefusedAddressesAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("mixed.test", time.Minute, "169.254.169.254", "10.0.0.1", "fe80::1", "10.0.0.2")
		z.set("bad.test", time.Minute, "169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0")
		r := z.resolver(t)
		if got := several(t, r, "mixed.test", 20); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2"}) {
			t.Errorf("picked %v", got)
		}
		fails(t, r, "bad.test", upstream.ErrRefused)
		for _, host := range []string{"mixed.test", "bad.test"} {
			if r.Contains(t.Context(), host, 80, netip.MustParseAddrPort("169.254.169.254:80")) {
				t.Errorf("%s contains what is refused", host)
			}
		}
	})
}

func TestPickRejectsRebinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("evil.test", time.Second, "93.184.215.14")
		r := z.resolver(t)
		pick(t, r, "evil.test")
		for _, target := range []string{"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "0.0.0.0"} {
			z.set("evil.test", time.Second, target)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			fails(t, r, "evil.test", upstream.ErrRefused)
		}
	})
}

// The gateway's own ports are refused, other ports of the same address are not.
func TestPickRejectsOwnListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("self.test", time.Minute, "127.0.0.1")
		rules := listening([]string{"0.0.0.0:8443"})
		r := z.resolver(t, func(c *upstream.Config) { c.Networks = func() *upstream.Networks { return rules } })
		if _, err := r.Pick(t.Context(), "self.test", 8443); !errors.Is(err, upstream.ErrRefused) {
			t.Errorf("Pick = %v", err)
		}
		if got := pick(t, r, "self.test"); got != "127.0.0.1" {
			t.Errorf("Pick = %v", got)
		}
	})
}

func TestNewRulesHoldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("a.test", time.Hour, "10.0.0.1")
		rules := networks()
		r := z.resolver(t, func(c *upstream.Config) { c.Networks = func() *upstream.Networks { return rules } })
		addr := netip.MustParseAddrPort("10.0.0.1:80")
		pick(t, r, "a.test")
		for _, rules = range []*upstream.Networks{networks("192.168.0.0/16"), nil} {
			fails(t, r, "a.test", upstream.ErrRefused)
			if r.Contains(t.Context(), "a.test", 80, addr) {
				t.Error("a refused address is contained")
			}
		}
	})
}
