package xds_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/xds"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// control is an xDS server in memory, with connections to it.
type control struct {
	*xds.Server
	listener *bufconn.Listener
}

func newControl(t *testing.T, config xds.Config) *control {
	t.Helper()
	config.Log = testLog(t)
	server, err := xds.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &control{server, bufconn.Listen(1 << 20)}
	transport := grpc.NewServer(xds.ServerOptions()...)
	server.Register(transport)
	done := make(chan struct{})
	go func() { defer close(done); _ = transport.Serve(c.listener) }()
	t.Cleanup(func() { transport.Stop(); <-done })
	return c
}

func (c *control) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:control",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (c *control) applied(t *testing.T, revision int64) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.Applied(ctx, revision)
}

// replica is an extauthz that remembers what it was told.
type replica struct {
	node string
	stop func()

	mu      sync.Mutex
	has     map[string]string // "type name" to version
	updates []client.Update
	refuse  error
	only    string // the type that is refused; "": all
	newest  int64  // of all updates, refused or not
	changed chan struct{}
}

func (c *control) follow(t *testing.T, node string, conn *grpc.ClientConn) *replica {
	t.Helper()
	r := &replica{node: node, has: map[string]string{}, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := client.Run(ctx, client.Config{
			Conn: conn, Node: node, Types: xds.FleetTypes(), Apply: r.apply, Log: testLog(t),
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	}()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
	return r
}

// said is the number that the resource was made with.
func said(r client.Resource) string {
	message, err := r.Body.UnmarshalNew()
	if err != nil {
		return err.Error()
	}
	switch message := message.(type) {
	case *pb.Server:
		return strings.TrimPrefix(message.GetName(), "at ")
	case *pb.Keys:
		return strconv.Itoa(int(message.GetTokenMac()[0]))
	case *pb.Gateway:
		return strconv.FormatInt(message.GetSessionSeconds(), 10)
	}
	return "something else"
}

func (r *replica) apply(u client.Update) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = max(r.newest, u.Revision)
	if r.refuse != nil && len(u.Changed) > 0 && (r.only == "" || r.only == u.Type) {
		return r.refuse
	}
	for _, resource := range u.Changed {
		r.has[u.Type+" "+resource.Name] = said(resource)
	}
	for _, name := range u.Removed {
		delete(r.has, u.Type+" "+name)
	}
	r.updates = append(r.updates, u)
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

func (r *replica) setRefusal(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

func (r *replica) refuseOnly(typeURL string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.only = typeURL
}

// told is the newest revision that came with an update.
func (r *replica) told() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// take returns the updates since the last call.
func (r *replica) take() []client.Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	updates := r.updates
	r.updates = nil
	return updates
}

func (r *replica) state() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.has)
}

// connected waits until a node's stream is listed.
func (c *control) connected(t *testing.T, node string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		for _, r := range c.Replicas() {
			if r.Node == node {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has not connected", node)
		}
	}
}

func server(id string, revision int64) xds.Resource {
	return xds.Resource{
		Name: xds.Name{Type: xds.TypeServer, Name: id},
		Body: &pb.Server{Id: id, Name: "at " + strconv.FormatInt(revision, 10)},
	}
}

func keys(revision int64) xds.Resource {
	return xds.Resource{Name: xds.Name{Type: xds.TypeKeys, Name: "keys"}, Body: &pb.Keys{TokenMac: []byte{byte(revision)}}}
}

func gatewaySettings(revision int64) xds.Resource {
	return xds.Resource{Name: xds.Name{Type: xds.TypeGateway, Name: "gateway"}, Body: &pb.Gateway{SessionSeconds: revision}}
}

// open starts a stream of a node by hand.
func (c *control) open(t *testing.T, node, typeURL string, names []string) grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse] {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.dial(t)).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: node}, TypeUrl: typeURL, ResourceNamesSubscribe: names,
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}
