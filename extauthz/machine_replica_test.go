//go:build !race

package extauthz

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/extauthz/resolve"
	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/token"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// machineReplica is one life of an extauthz: a whole Server, but for its
// sockets, the settings' stream and the size of its cache.
type machineReplica struct {
	name   string
	server *Server
	line   *line
	ctx    context.Context // of the process
	cancel context.CancelFunc
	ended  chan error

	mu         sync.Mutex    // guards boot and wall
	boot, wall time.Duration // how far its clocks were moved
}

// GoString is how rapid shows it.
func (r *machineReplica) GoString() string { return r.name }

// machineBegan is a moment before every run, on the clock of a bubble.
var machineBegan = time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)

func (r *machineReplica) clock() revocation.Instant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return revocation.Instant{Boot: time.Since(machineBegan) + r.boot, Wall: time.Now().Add(r.wall)}
}

func (r *machineReplica) step(boot, wall time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boot, r.wall = r.boot+boot, r.wall+wall
}

func newMachineReplica(name string, control *machineControl) (*machineReplica, error) {
	r := &machineReplica{name: name, line: newLine(control), ended: make(chan error, 1)}
	log, api := slog.New(slog.DiscardHandler), pb.NewControlClient(r.line)
	s := &Server{
		cfg: Config{Replica: name, Clock: r.clock, Slog: log}, now: time.Now, streams: newStreams(),
		headers: newHeaderCache(api), tools: newDefinitions(api), listIDs: newListIDs(), records: newRecorder(io.Discard, api, log),
	}
	r.server = s
	var err error
	if s.revoked, err = newFollower(s, api); err != nil {
		return nil, err
	}
	if s.addresses, err = upstream.New(upstream.Config{Networks: s.networks}); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(s, prometheus.NewRegistry()); err != nil {
		return nil, err
	}
	if err := r.settle(control.server); err != nil {
		return nil, err
	}
	s.tokens, err = resolve.New(resolve.Config{Control: api, Known: s.revoked.Known, Clock: s.revoked.Instant, Entries: 100})
	if err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go func() {
		defer s.tokens.Close()
		r.ended <- s.revoked.Run(r.ctx)
	}()
	return r, nil
}

// machineMAC checks the form of tokens.
var machineMAC = token.MACKey{1, 2, 3}

// settle gives the replica its settings, which stay.
func (r *machineReplica) settle(server identity.ServerID) error {
	bundle := policies.Standard()
	for _, part := range []struct {
		typ  string
		body proto.Message
	}{
		{typeGateway, &pb.Gateway{BaseUrl: "https://localhost:8443", SessionSeconds: 3600, StreamsPerCredential: 1000}},
		{typeKeys, &pb.Keys{TokenMac: machineMAC[:], SessionKeys: []*pb.SessionKey{{Id: 1, Key: bytes.Repeat([]byte{7}, 32)}}}},
		{typePolicy, &pb.Policy{Revision: bundle.Revision(), Files: bundle.Files}},
		{typeServer, &pb.Server{
			Id: server.String(), Name: "a", Enabled: true, Modern: true, MaxBody: 1 << 20, CallLimitSeconds: 600,
			Mcp: &pb.Upstream{Url: "http://127.0.0.1:9001/mcp", Cluster: "plain"},
		}},
	} {
		body, err := anypb.New(part.body)
		if err != nil {
			return err
		}
		err = r.server.apply(client.Update{
			Type: part.typ, Changed: []client.Resource{{Name: part.typ, Body: body}}, Complete: true, Revision: machineRevision(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// machineCall is a request of a token's whose answer may be a stream.
func machineCall(server identity.ServerID, value string) (wire.Message, error) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	lines := headerMap(
		"authorization", "Bearer "+value, "content-type", "application/json",
		"accept", "application/json, text/event-stream", "mcp-protocol-version", "2026-07-28",
		"mcp-method", "tools/call", "mcp-name", "echo", "x-envoy-auth-partial-body", "false",
	)
	return proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{
			Method: "POST", Path: "/servers/" + server.String() + "/mcp", Host: "localhost:8443",
			HeaderMap: lines, RawBody: []byte(body), Size: int64(len(body)),
		},
	}}})
}

func headerMap(pairs ...string) *corev3.HeaderMap {
	out := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		out.Headers = append(out.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return out
}

// check asks Check, and returns what it leaves for Guard when it allows.
func (r *machineReplica) check(call wire.Message) (*structpb.Struct, error) {
	ctx := metadata.NewIncomingContext(r.ctx, metadata.Pairs(metaStream, "request", metaPeerAddress, "192.0.2.1:5555"))
	message, err := r.server.Check(ctx, call)
	if err != nil {
		return nil, err
	}
	out := new(authv3.CheckResponse)
	if err := proto.Unmarshal(message, out); err != nil {
		return nil, err
	}
	if out.GetOkResponse() == nil {
		return nil, errors.New("denied: " + out.GetDeniedResponse().GetBody())
	}
	return out.GetDynamicMetadata(), nil
}

// machineStream is an upstream's answer that streams, between Envoy and Guard.
type machineStream struct {
	grpc.ServerStream
	replica *machineReplica
	note    *structpb.Struct
	token   *machineToken
	machine *machine
	began   bool          // Guard has read the headers
	over    chan struct{} // closed: cut, or never let through
}

// Context implements procv3.ExternalProcessor_ProcessServer.
func (s *machineStream) Context() context.Context { return s.replica.ctx }

// Recv implements procv3.ExternalProcessor_ProcessServer.
func (s *machineStream) Recv() (*procv3.ProcessingRequest, error) {
	if !s.began {
		s.began = true
		return &procv3.ProcessingRequest{
			Request: &procv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &procv3.HttpHeaders{
				Headers: headerMap(":status", "200", "content-type", "text/event-stream"),
			}},
			MetadataContext: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{metaNamespace: s.note}},
		}, nil
	}
	select {
	case <-s.over:
		return nil, io.EOF
	case <-s.replica.ctx.Done():
		return nil, s.replica.ctx.Err()
	}
}

// Send implements procv3.ExternalProcessor_ProcessServer: the headers make the
// stream live, everything else ends it.
func (s *machineStream) Send(out *procv3.ProcessingResponse) error {
	select {
	case <-s.over:
		return io.EOF
	default:
	}
	if out.GetResponseHeaders() != nil {
		s.machine.opened(s)
		return nil
	}
	close(s.over)
	s.machine.closed(s)
	return nil
}
