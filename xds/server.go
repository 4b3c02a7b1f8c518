package xds

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Role is what a replica is.
type Role string

// The roles that connect.
const (
	RoleEnvoy    Role = "envoy"
	RoleExtauthz Role = "extauthz"
)

// The type URLs of what every extauthz runs.
const (
	TypeServer  = "type.googleapis.com/arbiter.v1.Server"
	TypeKeys    = "type.googleapis.com/arbiter.v1.Keys"
	TypeGateway = "type.googleapis.com/arbiter.v1.Gateway"
	TypePolicy  = "type.googleapis.com/arbiter.v1.Policy"
)

// FleetTypes are all types of the fleet. A replica counts as running a revision
// only when it has subscribed to all of them.
func FleetTypes() []string { return []string{TypeServer, TypeKeys, TypeGateway, TypePolicy} }

// Config is what a Server needs.
type Config struct {
	Log *slog.Logger // required
	// Allow says why a node may not connect in a role; nil allows every node
	// that has an id. Who connects at all is for the transport to decide.
	Allow func(role Role, node string) error
	// Entered is told when an Envoy has connected and is listed, before it is
	// sent anything; it must not wait. May be nil.
	Entered func()
}

// Server pushes Envoy's configuration and the fleet. Nobody is served before
// the first SetEnvoy or SetFleet: an empty answer would mean "nothing exists".
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer // every other way to ask is refused

	config   Config
	replicas *replicas
	places   *places
	fleet    *fleet
}

// New makes a Server that has nothing to serve yet.
func New(c Config) (*Server, error) {
	if c.Log == nil {
		return nil, errors.New("xds: no logger")
	}
	if c.Allow == nil {
		c.Allow = func(Role, string) error { return nil }
	}
	if c.Entered == nil {
		c.Entered = func() {}
	}
	live := newReplicas()
	return &Server{config: c, replicas: live, places: newPlaces(live), fleet: newFleet()}, nil
}

// ServerOptions are what a gRPC server needs on which a Server is registered: a
// replica that resumes with 100,000 servers says their versions in one message,
// and one that is gone without a word is found within a minute.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(64 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// Register adds delta ADS to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s)
}

// SetEnvoy publishes the configuration that a State stands for, to the Envoys
// of every place, as far as it differs from what is published there. A State
// that does not translate changes nothing. What every Envoy says about it:
// Applied.
func (s *Server) SetEnvoy(state State) error { return s.places.publish(state) }

// SetFleet publishes one revision of the fleet: what changed and what is gone
// since the previous call. The first call brings everything.
func (s *Server) SetFleet(revision int64, changed []Resource, removed []Name) error {
	return s.fleet.set(revision, changed, removed)
}

// DeltaAggregatedResources serves one replica for as long as it is connected.
func (s *Server) DeltaAggregatedResources(stream deltaStream) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	role := RoleEnvoy
	if slices.Contains(FleetTypes(), first.GetTypeUrl()) {
		role = RoleExtauthz
	}
	node := first.GetNode().GetId()
	log := s.config.Log.With("role", role, "node", node)
	caches, err := s.admit(role, first.GetNode())
	if err != nil {
		log.Warn("replica refused", "reason", status.Convert(err).Message())
		return err
	}
	if role == RoleEnvoy {
		defer s.places.leave(caches)
	}
	me := s.replicas.add(role, node, caches)
	defer s.replicas.remove(me)
	log.Info("replica connected")
	defer log.Info("replica gone")

	in := receive(stream, first, me)
	if role == RoleExtauthz {
		return s.fleet.serve(in, s.replicas, me, log)
	}
	s.config.Entered()
	return s.places.serve(in, me, log)
}

// admit says whether a node may connect, and lets an Envoy enter its place; an
// extauthz has none. The error is a gRPC status.
func (s *Server) admit(role Role, node *corev3.Node) (*envoyCaches, error) {
	if err := s.allow(role, node.GetId()); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if role == RoleExtauthz {
		return nil, nil //nolint:nilnil // it stands nowhere
	}
	place, err := placeOf(node.GetMetadata())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return s.places.enter(place)
}

func (s *Server) allow(role Role, node string) error {
	if node == "" || len(node) > 256 {
		return fmt.Errorf("a replica needs a node id of 1 to 256 bytes")
	}
	return s.config.Allow(role, node)
}

type deltaStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

// inbound is a stream of which the first message was already read, and which
// ends when a newer stream of the same node takes its place.
type inbound struct {
	deltaStream
	requests chan *discoveryv3.DeltaDiscoveryRequest // closed when the client is done
	replaced <-chan struct{}
	again    <-chan *discoveryv3.DeltaDiscoveryRequest
}

var errReplaced = status.Error(codes.Aborted, "a newer stream of this node has taken over")

// receive starts reading. The goroutine ends with the RPC: its context ends
// when the handler returns.
func receive(stream deltaStream, first *discoveryv3.DeltaDiscoveryRequest, me *replica) *inbound {
	in := &inbound{
		deltaStream: stream, requests: make(chan *discoveryv3.DeltaDiscoveryRequest),
		replaced: me.replaced, again: me.again,
	}
	go func() {
		defer close(in.requests)
		for request := first; ; {
			select {
			case in.requests <- request:
			case <-stream.Context().Done():
				return
			}
			var err error
			if request, err = stream.Recv(); err != nil {
				return
			}
		}
	}()
	return in
}

// Recv waits for the next message of the replica.
func (in *inbound) Recv() (*discoveryv3.DeltaDiscoveryRequest, error) {
	select {
	case request, ok := <-in.requests:
		if !ok {
			return nil, io.EOF
		}
		return request, nil
	case request := <-in.again:
		return request, nil
	case <-in.replaced:
		return nil, errReplaced
	}
}
