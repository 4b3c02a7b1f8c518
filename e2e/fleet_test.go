//go:build e2e

package e2e

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// TestSeveralPairs: three pairs beside one control are one gateway. Each
// answers, a delete waits for each, and each refuses afterwards.
func TestSeveralPairs(t *testing.T) {
	f := startFleet(t, 3, "ARBITER_LEASE=5s")
	echo := testfleet.NewEcho(t, testfleet.Config{})
	server := f.addServer(t, echo.Origin(), echo.Origin())
	id, token := f.addToken(t, server)
	ping := call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")}
	for i, p := range f.pairs {
		eventually(t, 5*time.Second, "the token works everywhere", func() bool { return p.do(t, ping).status == 200 })
		p.session(t, server, token)
		if p.envoy.pid() == f.pairs[(i+1)%3].envoy.pid() {
			t.Error("two pairs are one")
		}
	}
	s, err := f.status()
	if err != nil || s.connected() != 3 || s.Envoy.Connected != 3 || len(s.Listeners) != 3 {
		t.Errorf("status %+v, %v", s, err)
	}
	doctor, err := f.cli(t, "", "doctor")
	if err != nil || strings.Count(doctor, "extauthz-") != 3 {
		t.Errorf("doctor: %v\n%s", err, doctor)
	}
	for i, p := range f.pairs {
		if !slices.Contains(s.Listeners, p.addr) || !strings.Contains(doctor, p.addr) {
			t.Errorf("pair %d listens on %s, which is not in %v, or not in\n%s", i+1, p.addr, s.Listeners, doctor)
		}
	}
	for _, role := range []string{"extauthz", "envoy"} {
		again := attempt(t, append(slices.Clone(f.pairs[1].env), "ARBITER_LISTEN="+closedPort(t)), role)
		if again.code != 1 || !strings.Contains(again.stderr, "already runs in") {
			t.Errorf("%s of the same number: exit code %d, %s", role, again.code, again.stderr)
		}
	}
	answer := f.object(t, "", "token", "delete", server, id)["revocation"].(map[string]any)
	if answer["replicas"] != 3.0 || answer["replicas_confirmed"] != 3.0 {
		t.Errorf("the delete says %v", answer)
	}
	for _, p := range f.pairs {
		p.expect(t, server, token, 401)
	}
}

// TestNoPairIsAnUpstream is the attack of a server whose upstream is another
// pair's listener: requests would go round in the gateway.
func TestNoPairIsAnUpstream(t *testing.T) {
	f := startFleet(t, 2)
	for _, target := range f.pairs {
		_, port, _ := net.SplitHostPort(target.addr)
		for _, host := range []string{"127.0.0.1:" + port, "[::ffff:127.0.0.1]:" + port} {
			server := f.addServer(t, "", "http://"+host+"/")
			_, token := f.addToken(t, server)
			for i, p := range f.pairs {
				got := p.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")})
				if why := p.why(t, got); got.status != http.StatusBadGateway || !strings.Contains(why, "upstream_unreachable") {
					t.Errorf("pair %d, upstream %s: status %d, body %s\n%s", i+1, host, got.status, got.body, why)
				}
			}
		}
	}
}

// why is what explain says of an answer. A refused address is a denial; one that
// was dialled in vain was allowed first.
func (g *gateway) why(t *testing.T, got reply) (out string) {
	t.Helper()
	eventually(t, 10*time.Second, "the decision is recorded", func() bool {
		var err error
		out, err = g.cli(t, "", "explain", "--record", got.header.Get("Arbiter-Request-Id"))
		return err == nil
	})
	return out
}

// TestPairsFailApart takes one pair's extauthz away: the other one works, and
// after a restart of control both do.
func TestPairsFailApart(t *testing.T) {
	f := startFleet(t, 2, "ARBITER_LEASE=5s")
	echo := testfleet.NewEcho(t, testfleet.Config{})
	server := f.addServer(t, echo.Origin(), echo.Origin())
	_, token := f.addToken(t, server)
	ping := call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")}
	becomes := func(i, status int) {
		t.Helper()
		eventually(t, 15*time.Second, "the status of a pair", func() bool { return f.pairs[i].do(t, ping).status == status })
	}
	becomes(0, 200)
	becomes(1, 200)
	f.pairs[1].extauthz.kill(t)
	becomes(1, 503)
	becomes(0, 200)
	f.control.kill(t)
	f.control.start(t)
	f.pairs[1].extauthz.start(t)
	becomes(0, 200)
	becomes(1, 200)
	f.awaitReady(t)
}
