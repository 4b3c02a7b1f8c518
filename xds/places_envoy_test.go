package xds_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"

	"github.com/arbiter-gateway/arbiter/xds"
)

// TestEnvoysOfSeveralPlaces runs a second Envoy beside an extauthz of its own,
// and a third whose port is taken: it says so, and disturbs nobody.
func TestEnvoysOfSeveralPlaces(t *testing.T) {
	g := startGateway(t, nil)
	loopback := netip.MustParseAddr("127.0.0.1")
	second := xds.Place{Listen: netip.AddrPortFrom(loopback, freePort(t)), Extauthz: filepath.Join(g.dir, "extauthz-2.sock")}
	beside := &fakeExtauthz{checks: map[string]func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error){}}
	transport := grpc.NewServer()
	authv3.RegisterAuthorizationServer(transport, beside)
	serveGRPC(t, transport, second.Extauthz)
	soon, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if err := g.envoyAt("envoy-2", second).Ready(soon); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Applied(soon, 0); err != nil {
		t.Fatal(err)
	}
	ask := func(at xds.Place) int {
		g.place, g.url = at, "https://localhost:"+at.Listen.String()[len("127.0.0.1:"):]
		return g.do(t, g.client(true), "POST", "/servers/00000000-0000-4000-8000-000000000000/rpc", `{}`).status
	}
	first := g.place
	if got := ask(second); got != 401 || beside.count() != 1 || g.extauthz.count() != 0 {
		t.Errorf("the second answers %d, asked %d times there and %d times at the first", got, beside.count(), g.extauthz.count())
	}
	if got := ask(first); got != 401 || beside.count() != 1 || g.extauthz.count() != 1 {
		t.Errorf("the first answers %d, asked %d times there and %d times at the second", got, g.extauthz.count(), beside.count())
	}

	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	g.envoyAt("envoy-3", xds.Place{Listen: netip.MustParseAddrPort(busy.Addr().String()), Extauthz: second.Extauthz})
	for len(g.server.Replicas()) < 3 {
		select {
		case <-soon.Done():
			t.Fatal("the third has not connected")
		case <-time.After(5 * time.Millisecond):
		}
	}
	var refusal *xds.NotAppliedError
	if err := g.server.Applied(soon, 0); !errors.As(err, &refusal) || refusal.Node != "envoy-3" || !strings.Contains(refusal.Detail, "in use") {
		t.Errorf("Applied says %v", err)
	}
	for _, r := range g.server.Replicas() {
		if r.Current == (r.Node == "envoy-3") {
			t.Errorf("%+v", r)
		}
	}
	if ask(first) != 401 || ask(second) != 401 {
		t.Error("the others no longer answer")
	}
}
