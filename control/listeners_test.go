package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"google.golang.org/grpc"

	"github.com/arbiter-gateway/arbiter/control"
	"github.com/arbiter-gateway/arbiter/control/api"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/xds"
)

var envoys atomic.Int64 // no two have the same name

// envoyAt connects an Envoy that listens somewhere, until stop. It does not
// confirm what it is sent.
func (f *fixture) envoyAt(listen string) (stop func()) {
	f.t.Helper()
	_, stop = f.connectEnvoy(listen)
	return stop
}

// confirm asks for everything that Envoy asks for, and takes what comes.
func (f *fixture) confirm(stream envoyStream) {
	f.t.Helper()
	for _, ask := range []*discoveryv3.DeltaDiscoveryRequest{
		{TypeUrl: resourcev3.ListenerType},
		{TypeUrl: resourcev3.RouteType, ResourceNamesSubscribe: []string{"public"}},
		{TypeUrl: resourcev3.SecretType, ResourceNamesSubscribe: []string{"server-certificate"}},
	} {
		if err := stream.Send(ask); err != nil {
			f.t.Fatal(err)
		}
	}
	for range 4 {
		in, err := stream.Recv()
		if err == nil {
			err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: in.GetTypeUrl(), ResponseNonce: in.GetNonce()})
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

type envoyStream = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

func (f *fixture) connectEnvoy(listen string) (_ envoyStream, stop func()) {
	f.t.Helper()
	metadata, err := xds.Place{Listen: netip.MustParseAddrPort(listen), Extauthz: "/x.sock"}.Metadata()
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(f.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "envoy " + strconv.FormatInt(envoys.Add(1), 10), Metadata: metadata}, TypeUrl: resourcev3.ClusterType,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return stream, cancel
}

func (f *fixture) status() (out api.Status) {
	f.t.Helper()
	resp, err := f.admin.Get("http://arbiter/api/v1/status")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		f.t.Fatal(err)
	}
	return out
}

// own is where the newest settings say that we listen ourselves.
func (to *follower) own() []string {
	to.mu.Lock()
	defer to.mu.Unlock()
	if len(to.gateways) == 0 {
		return nil
	}
	return to.gateways[len(to.gateways)-1].GetOwnListeners()
}

// TestListenersOfEnvoysAreNoUpstreams: extauthz hears of each listener as its
// Envoy connects, and for a while after it has left: it may come back.
func TestListenersOfEnvoysAreNoUpstreams(t *testing.T) {
	var later atomic.Int64
	f := newFixture(t, func(c *control.Config) {
		c.Gateway.OwnListeners = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8443")}
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	to := &follower{servers: map[string]*pb.Server{}}
	f.follow(to)
	are := func(want ...string) {
		t.Helper()
		f.eventually(fmt.Sprintf("our listeners are %v", want), func() bool { return slices.Equal(to.own(), want) })
	}
	are("127.0.0.1:8443")
	f.envoyAt("127.0.0.1:8443")
	gone := f.envoyAt("127.0.0.1:9002")
	are("127.0.0.1:8443", "127.0.0.1:9002")
	gone()
	f.envoyAt("127.0.0.1:9003")
	are("127.0.0.1:8443", "127.0.0.1:9002", "127.0.0.1:9003")
	later.Store(int64(9 * time.Minute))
	f.envoyAt("127.0.0.1:9004")
	are("127.0.0.1:8443", "127.0.0.1:9002", "127.0.0.1:9003", "127.0.0.1:9004")
	later.Store(int64(20 * time.Minute))
	are("127.0.0.1:8443", "127.0.0.1:9003", "127.0.0.1:9004")
}

// TestListenersAreBounded: Envoys that come and go from ever new ports do not
// make the settings grow and grow.
func TestListenersAreBounded(t *testing.T) {
	f := newFixture(t, nil)
	to := &follower{servers: map[string]*pb.Server{}}
	f.follow(to)
	most := 0
	for batch := range 6 {
		var (
			stops   []func()
			batchOf []string
		)
		for i := range 200 {
			listen := fmt.Sprintf("127.0.0.1:%d", 10_000+batch*200+i)
			batchOf, stops = append(batchOf, listen), append(stops, f.envoyAt(listen))
		}
		f.eventually("all of a batch are ours", func() bool {
			own := to.own()
			return !slices.ContainsFunc(batchOf, func(listen string) bool { return !slices.Contains(own, listen) })
		})
		most = max(most, len(to.own()))
		for _, stop := range stops {
			stop()
		}
		f.eventually("all of a batch are gone", func() bool { return f.status().Envoy.Connected == 0 })
	}
	if n := len(to.own()); n >= 1200 || most < 1000 {
		t.Errorf("%d listeners after 1,200 have come and gone, and at most %d", n, most)
	}
}

// TestStatusOfSeveralEnvoys: they are ready when all are.
func TestStatusOfSeveralEnvoys(t *testing.T) {
	f := newFixture(t, nil)
	var all []envoyStream
	for _, listen := range []string{"127.0.0.1:9002", "127.0.0.1:9001", "127.0.0.1:9001"} {
		stream, _ := f.connectEnvoy(listen)
		all = append(all, stream)
	}
	f.eventually("three are there", func() bool { return f.status().Envoy.Connected == 3 })
	for _, stream := range slices.Backward(all) { // so that the one seen last is ready first
		if f.status().Envoy.Ready {
			t.Error("ready before all are")
		}
		f.confirm(stream)
	}
	f.eventually("all are ready", func() bool { return f.status().Envoy.Ready })
	if got := f.status(); !slices.Equal(got.Listeners, []string{"127.0.0.1:9001", "127.0.0.1:9002"}) {
		t.Errorf("status %+v, listeners %v", got.Envoy, got.Listeners)
	}
}
