package xds_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/xds"
)

// envoyState is a State that translates.
func envoyState(t *testing.T) xds.State {
	t.Helper()
	certificate, key := newAuthority(t).issue(t, "localhost")
	return xds.State{Certificate: certificate, Key: secret.New(key), SystemRoots: "/roots.pem"}
}

func placeAt(port uint16) xds.Place {
	return xds.Place{
		Listen:   netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port),
		Extauthz: fmt.Sprintf("/run/extauthz-%d.sock", port),
	}
}

// pretender is an Envoy that takes everything it is sent, or refuses a type.
type pretender struct {
	stop func()
	done chan struct{} // closed when the stream has ended

	mu       sync.Mutex
	has      map[string]*discoveryv3.Resource // by type and name
	messages int
	refuse   string // a type
}

// pretend connects an Envoy of a place.
func (c *control) pretend(t *testing.T, node string, at xds.Place) *pretender {
	t.Helper()
	metadata, err := at.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	p, stream := c.connect(t, node, metadata)
	go func() {
		defer close(p.done)
		for {
			in, err := stream.Recv()
			if err != nil {
				return
			}
			if err := stream.Send(p.take(in)); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { p.stop(); <-p.done })
	return p
}

// connect asks for what Envoy asks for.
func (c *control) connect(t *testing.T, node string, metadata *structpb.Struct) (*pretender, grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	p := &pretender{stop: cancel, done: make(chan struct{}), has: map[string]*discoveryv3.Resource{}}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.dial(t)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []*discoveryv3.DeltaDiscoveryRequest{
		{TypeUrl: resourcev3.ClusterType, Node: &corev3.Node{Id: node, Metadata: metadata}},
		{TypeUrl: resourcev3.ListenerType},
		{TypeUrl: resourcev3.RouteType, ResourceNamesSubscribe: []string{"public"}},
		{TypeUrl: resourcev3.SecretType, ResourceNamesSubscribe: []string{"server-certificate"}},
	} {
		if stream.Send(ask) != nil {
			break // refused already: Recv says why
		}
	}
	return p, stream
}

func (p *pretender) take(in *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages++
	out := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: in.GetTypeUrl(), ResponseNonce: in.GetNonce()}
	if in.GetTypeUrl() == p.refuse {
		out.ErrorDetail = &statuspb.Status{Message: "not here"}
		return out
	}
	for _, r := range in.GetResources() {
		p.has[in.GetTypeUrl()+" "+r.GetName()] = r
	}
	for _, name := range in.GetRemovedResources() {
		delete(p.has, in.GetTypeUrl()+" "+name)
	}
	return out
}

// place is where the configuration says that it stands, and all its versions.
func (p *pretender) place(t *testing.T) (at xds.Place, versions map[string]string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	versions = map[string]string{}
	for name, r := range p.has {
		versions[name] = r.GetVersion()
	}
	listener, cluster := new(listenerv3.Listener), new(clusterv3.Cluster)
	unpack(t, p.has[resourcev3.ListenerType+" public"].GetResource(), listener)
	address := listener.GetAddress().GetSocketAddress()
	at.Listen = netip.AddrPortFrom(netip.MustParseAddr(address.GetAddress()), uint16(address.GetPortValue()))
	for _, name := range []string{"extauthz-check", "extauthz-guard"} {
		unpack(t, p.has[resourcev3.ClusterType+" "+name].GetResource(), cluster)
		socket := cluster.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetPipe().GetPath()
		if at.Extauthz != "" && at.Extauthz != socket {
			t.Errorf("Check is at %s, Guard at %s", at.Extauthz, socket)
		}
		at.Extauthz = socket
	}
	return at, versions
}

func (c *control) all(t *testing.T, what string, is func([]xds.Replica) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(c.Replicas()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s: %+v", what, c.Replicas())
		}
	}
}

func connected(n int) func([]xds.Replica) bool {
	return func(all []xds.Replica) bool { return len(all) == n }
}

// TestEachPlaceRunsItsOwn: the same State, another listener and another socket;
// who comes before the first State, after it or after everybody of its place
// has left runs the newest.
func TestEachPlaceRunsItsOwn(t *testing.T) {
	entered := make(chan struct{}, 16)
	c := newControl(t, xds.Config{Entered: func() { entered <- struct{}{} }})
	state := envoyState(t)
	one := c.pretend(t, "one", placeAt(8001))
	c.all(t, "one", connected(1))
	<-entered
	if c.Replicas()[0].Current {
		t.Error("current before there is anything")
	}
	if err := c.SetEnvoy(state); err != nil {
		t.Fatal(err)
	}
	two, beside := c.pretend(t, "two", placeAt(8002)), c.pretend(t, "beside two", placeAt(8002))
	c.all(t, "three", connected(3))
	check := func() {
		t.Helper()
		if err := c.applied(t, 0); err != nil {
			t.Fatal(err)
		}
		first, versions := one.place(t)
		second, others := two.place(t)
		third, same := beside.place(t)
		if first != placeAt(8001) || second != placeAt(8002) || third != placeAt(8002) {
			t.Errorf("places %v, %v, %v", first, second, third)
		}
		if !maps.Equal(others, same) {
			t.Errorf("in one place: %v and %v", others, same)
		}
		for name, version := range versions {
			own := strings.HasSuffix(name, "Listener public") || strings.Contains(name, "extauthz-")
			if differs := others[name] != version; differs != own {
				t.Errorf("%s differs: %v", name, differs)
			}
		}
	}
	check()
	state.TLS12 = true
	if err := c.SetEnvoy(state); err != nil {
		t.Fatal(err)
	}
	_, before := two.place(t)
	check()
	for _, p := range []*pretender{two, beside} {
		p.stop()
		<-p.done
	}
	c.all(t, "the second place is empty", connected(1))
	state.TLS12, state.CAs = false, []string{string(readFile(t, "testdata/ca-one.pem"))}
	if err := c.SetEnvoy(state); err != nil {
		t.Fatal(err)
	}
	two, beside = c.pretend(t, "two", placeAt(8002)), c.pretend(t, "beside two", placeAt(8002))
	c.all(t, "all are back", connected(3))
	check()
	if _, after := two.place(t); maps.Equal(before, after) || len(after) != len(before)+1 {
		t.Errorf("the second place was given %v after %v", after, before)
	}
	for _, r := range c.Replicas() {
		if want := placeAt(8002); r.Node == "two" && r.Place != want {
			t.Errorf("%+v", r)
		}
	}
}

// TestRefusalStaysInItsPlace: what one place refuses is named, holds no other
// place up, and is not sent again because somebody enters elsewhere.
func TestRefusalStaysInItsPlace(t *testing.T) {
	c := newControl(t, xds.Config{})
	state := envoyState(t)
	if err := c.SetEnvoy(state); err != nil {
		t.Fatal(err)
	}
	c.pretend(t, "good", placeAt(8001))
	bad := c.pretend(t, "bad", placeAt(8002))
	c.all(t, "two", connected(2))
	if err := c.applied(t, 0); err != nil {
		t.Fatal(err)
	}
	bad.mu.Lock()
	bad.refuse = resourcev3.ListenerType
	bad.mu.Unlock()
	state.TLS12 = true
	if err := c.SetEnvoy(state); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		var refusal *xds.NotAppliedError
		if err := c.applied(t, 0); !errors.As(err, &refusal) || refusal.Node != "bad" || refusal.Detail != "not here" {
			t.Errorf("Applied says %v", err)
		}
	}
	refused()
	bad.mu.Lock()
	messages := bad.messages
	bad.mu.Unlock()
	c.pretend(t, "late", placeAt(8003))
	c.all(t, "the others run it", func(all []xds.Replica) bool {
		return len(all) == 3 && !all[0].Current && all[0].Error == "not here" && all[1].Current && all[2].Current
	})
	refused()
	bad.mu.Lock()
	if bad.messages != messages {
		t.Error("somebody entered elsewhere, and it was sent again")
	}
	bad.refuse = ""
	bad.mu.Unlock()
	if err := c.SetEnvoy(state); err != nil {
		t.Fatal(err)
	}
	if err := c.applied(t, 0); err != nil {
		t.Errorf("after it was mended: %v", err)
	}
}

func TestStateThatDoesNotTranslateChangesNothing(t *testing.T) {
	c := newControl(t, xds.Config{})
	state := envoyState(t)
	state.CAs = []string{"x"}
	if err := c.SetEnvoy(state); !errors.Is(err, xds.ErrState) {
		t.Errorf("without an Envoy: %v", err)
	}
	state.CAs = nil
	if err := c.SetEnvoy(state); err != nil {
		t.Fatal(err)
	}
	p := c.pretend(t, "one", placeAt(8001))
	c.all(t, "one", connected(1))
	if err := c.applied(t, 0); err != nil {
		t.Fatal(err)
	}
	_, before := p.place(t)
	state.CAs = []string{"x"}
	if err := c.SetEnvoy(state); !errors.Is(err, xds.ErrState) {
		t.Errorf("with one: %v", err)
	}
	if err := c.applied(t, 0); err != nil {
		t.Errorf("Applied says %v", err)
	}
	if _, after := p.place(t); !maps.Equal(before, after) {
		t.Errorf("it has %v after %v", after, before)
	}
}

// TestPlacesAreBounded: who can connect cannot make the server keep more and
// more, and a place that is left makes room.
func TestPlacesAreBounded(t *testing.T) {
	const most = 256
	c := newControl(t, xds.Config{})
	if err := c.SetEnvoy(envoyState(t)); err != nil {
		t.Fatal(err)
	}
	var all []*pretender
	for i := range most {
		all = append(all, c.pretend(t, fmt.Sprint("envoy ", i), placeAt(uint16(1000+i))))
	}
	c.all(t, "all are there", connected(most))
	enter := func(at xds.Place) error {
		metadata, err := at.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		p, stream := c.connect(t, "one more", metadata)
		defer p.stop()
		_, err = stream.Recv()
		return err
	}
	if err := enter(placeAt(9999)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one place more: %v", err)
	}
	if err := enter(placeAt(1000)); err != nil {
		t.Errorf("one Envoy more in a place that is there: %v", err)
	}
	all[most-1].stop()
	<-all[most-1].done
	c.all(t, "one has left", func(all []xds.Replica) bool {
		return len(all) < most && !slices.ContainsFunc(all, func(r xds.Replica) bool { return r.Node == "one more" })
	})
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = enter(placeAt(9999)); err == nil {
			return
		}
	}
	t.Errorf("after one has left: %v", err)
}

// TestServerRefusesEnvoysWithoutPlace lists what an Envoy must not be given a
// configuration for.
func TestServerRefusesEnvoysWithoutPlace(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetEnvoy(envoyState(t)); err != nil {
		t.Fatal(err)
	}
	texts := func(pairs ...string) *structpb.Struct {
		out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for i := 0; i < len(pairs); i += 2 {
			out.Fields[pairs[i]] = structpb.NewStringValue(pairs[i+1])
		}
		return out
	}
	tests := []struct {
		name     string
		metadata *structpb.Struct
		say      string
	}{
		{"no metadata", nil, "where it listens"},
		{"no listener", texts("extauthz", "/x.sock"), "where it listens"},
		{"a listener that is a number", &structpb.Struct{Fields: map[string]*structpb.Value{
			"listen": structpb.NewNumberValue(8443), "extauthz": structpb.NewStringValue("/x.sock"),
		}}, "where it listens"},
		{"a listener that is a name", texts("listen", "localhost:8443", "extauthz", "/x.sock"), "localhost"},
		{"no port", texts("listen", "127.0.0.1", "extauthz", "/x.sock"), "not an ip:port"},
		{"any port", texts("listen", "127.0.0.1:0", "extauthz", "/x.sock"), "no port"},
		{"a long listener", texts("listen", "[fe80::1%"+strings.Repeat("x", 128)+"]:1", "extauthz", "/x.sock"), "where it listens"},
		{"no socket", texts("listen", "127.0.0.1:1"), "no socket"},
		{"a socket that everybody can take", texts("listen", "127.0.0.1:1", "extauthz", "@x"), "not the path"},
		{"a long socket", texts("listen", "127.0.0.1:1", "extauthz", "/"+strings.Repeat("x", 107)), "not the path"},
		{"a socket with a NUL", texts("listen", "127.0.0.1:1", "extauthz", "/x\x00"), "not the path"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, stream := c.connect(t, "lost", test.metadata)
			defer p.stop()
			_, err := stream.Recv()
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.say) {
				t.Errorf("got %v, want one that says %q", err, test.say)
			}
		})
	}
	for _, p := range []xds.Place{{}, {Listen: placeAt(1).Listen}, {Extauthz: "/x"}, placeAt(0)} {
		if _, err := p.Metadata(); !errors.Is(err, xds.ErrPlace) {
			t.Errorf("metadata of %v: %v", p, err)
		}
		if _, err := xds.Translate(envoyState(t), p); !errors.Is(err, xds.ErrPlace) {
			t.Errorf("translation for %v: %v", p, err)
		}
	}
}
