package extauthz_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/arbiter-gateway/arbiter/extauthz"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/token"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/xds"
)

const baseURL = "https://localhost:8443"

var macKey = token.MACKey{1, 2, 3}

// fixture is an extauthz with a control that behaves: real gRPC on a socket,
// the real xDS server and revocation hub, tokens and log in memory.
type fixture struct {
	t        testing.TB
	server   *extauthz.Server
	xds      *xds.Server
	hub      *revocation.Hub
	control  *fakeControl
	faults   *faults
	records  *syncBuffer
	registry *prometheus.Registry
	socket   string // of extauthz
	revision atomic.Int64
	silence  func() // control is not heard any more
}

// fakeControl answers Resolve from memory.
type fakeControl struct {
	pb.UnimplementedControlServer
	hub *revocation.Hub

	mu           sync.Mutex // guards the rest
	tokens       map[token.Digest]*pb.ResolveResponse
	headers      map[string]*pb.UpstreamHeadersResponse
	entries      []revocation.Entry
	broken       error        // what Resolve answers instead
	records      [][][]byte   // batches that came, while they are kept
	values       []*pb.Values // that came with them
	used         map[string]bool
	keepsRecords bool
	asked        int
	waiting      bool          // UpstreamHeaders was asked
	held         chan struct{} // UpstreamHeaders answers when it is closed; nil: at once
	meanwhile    func()        // runs while UpstreamHeaders is asked
	changedTools []string      // what Tools answers
	toolsBroken  error         // or this
}

func (c *fakeControl) Tools(context.Context, *pb.ToolsRequest) (*pb.ToolsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &pb.ToolsResponse{Changed: c.changedTools}, c.toolsBroken
}

// tools says what control knows of tools.
func (c *fakeControl) tools(changed []string, broken error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changedTools, c.toolsBroken = changed, broken
}

func (c *fakeControl) Resolve(_ context.Context, in *pb.ResolveRequest) (*pb.ResolveResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.broken != nil {
		return nil, c.broken
	}
	found := c.tokens[token.Digest(in.GetDigest())]
	if found == nil {
		return nil, status.Error(codes.NotFound, "no such token")
	}
	found.Database, found.Epoch, found.Seq = "test", 1, int64(len(c.entries))
	return found, nil
}

func (c *fakeControl) UpstreamHeaders(_ context.Context, in *pb.UpstreamHeadersRequest) (*pb.UpstreamHeadersResponse, error) {
	c.mu.Lock()
	c.waiting = true
	held, meanwhile := c.held, c.meanwhile
	c.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
	if held != nil {
		<-held
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers[in.GetServerId()], nil
}

func (c *fakeControl) Record(_ context.Context, in *pb.RecordRequest) (*pb.RecordResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keepsRecords {
		c.records = append(c.records, in.GetRecords())
		c.values = append(c.values, in.GetValues()...)
		for _, u := range in.GetUsed() {
			c.used[u.GetCredential()] = true
		}
	}
	return &pb.RecordResponse{}, nil
}

func (c *fakeControl) Revocations(stream pb.Control_RevocationsServer) error {
	return c.hub.Serve(stream)
}

// Position, RevocationsSince and OldestRevocation make it a revocation.Log.
func (c *fakeControl) Position(context.Context) (revocation.Position, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return revocation.Position{Database: "test", Epoch: 1, Seq: int64(len(c.entries))}, nil
}

func (c *fakeControl) RevocationsSince(_ context.Context, seq int64, limit int) ([]revocation.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.entries[min(seq, int64(len(c.entries))):]
	return rest[:min(len(rest), limit)], nil
}

func (*fakeControl) OldestRevocation(context.Context) (int64, error) { return 0, nil }

// noRoster is a list of replicas for a control that is never started again.
type noRoster struct{}

func (noRoster) Add(context.Context, string, time.Duration) error { return nil }
func (noRoster) Remove(context.Context, string) error             { return nil }

type syncBuffer struct {
	mu     sync.Mutex // guards the rest
	buf    bytes.Buffer
	broken error
}

func (b *syncBuffer) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken != nil {
		return 0, b.broken
	}
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newFixture(t testing.TB, servers ...*pb.Server) *fixture {
	t.Helper()
	return newFixtureAt(t, revocation.SystemClock, servers...)
}

// newFixtureAt has an extauthz whose clocks are the test's.
func newFixtureAt(t testing.TB, clock revocation.Clock, servers ...*pb.Server) *fixture {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	said := new(faults)
	control := &fakeControl{used: map[string]bool{}, tokens: map[token.Digest]*pb.ResolveResponse{}, headers: map[string]*pb.UpstreamHeadersResponse{}}
	f := &fixture{t: t, control: control, faults: said, records: new(syncBuffer), registry: prometheus.NewRegistry()}
	f.hub = revocation.NewHub(revocation.HubConfig{
		Log: control, Roster: noRoster{}, Lease: 15 * time.Second,
		Pushed: f.revision.Load, Due: func() int64 { return 0 },
	})
	control.hub = f.hub
	var err error
	if f.xds, err = xds.New(xds.Config{Log: log}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f.push(gateway(), keys(), servers)
	f.serve(filepath.Join(dir, "control.sock"))

	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "control.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	f.socket = filepath.Join(dir, "extauthz.sock")
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	f.server, err = extauthz.New(extauthz.Config{
		Replica: "test", Control: conn, Listener: listener, Records: f.records, Metrics: f.registry, Slog: slog.New(said),
		Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("extauthz ended with %v", err)
		}
		_ = conn.Close()
	})
	f.eventually("extauthz is ready", func() bool { return f.server.Ready() == nil })
	return f
}

func (f *fixture) serve(socket string) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		f.t.Fatal(err)
	}
	server := grpc.NewServer(xds.ServerOptions()...)
	f.xds.Register(server)
	pb.RegisterControlServer(server, f.control)
	go func() { _ = server.Serve(listener) }()
	f.silence = server.Stop
	f.t.Cleanup(server.Stop)
}

// push publishes servers at the next revision.
func (f *fixture) push(gateway *pb.Gateway, keys *pb.Keys, servers []*pb.Server) {
	f.t.Helper()
	revision := f.revision.Add(1)
	var changed []xds.Resource
	if gateway != nil {
		changed = append(changed, xds.Resource{Name: xds.Name{Type: xds.TypeGateway, Name: "gateway"}, Body: gateway})
	}
	if keys != nil {
		changed = append(changed, xds.Resource{Name: xds.Name{Type: xds.TypeKeys, Name: "keys"}, Body: keys})
	}
	if gateway != nil { // the first push
		bundle := policies.Standard()
		changed = append(changed, xds.Resource{Name: xds.Name{Type: xds.TypePolicy, Name: "policy"}, Body: &pb.Policy{Revision: bundle.Revision(), Files: bundle.Files}})
	}
	for _, srv := range servers {
		changed = append(changed, xds.Resource{Name: xds.Name{Type: xds.TypeServer, Name: srv.GetId()}, Body: srv})
	}
	if err := f.xds.SetFleet(revision, changed, nil); err != nil {
		f.t.Fatal(err)
	}
}

// change pushes servers and waits until extauthz runs them.
func (f *fixture) change(servers ...*pb.Server) {
	f.t.Helper()
	f.push(nil, nil, servers)
	f.applied()
}

// decideBy pushes a policy and waits until extauthz decides by it.
func (f *fixture) decideBy(rego string) {
	f.t.Helper()
	f.offerPolicy(rego)
	f.applied()
}

func (f *fixture) offerPolicy(rego string) {
	f.t.Helper()
	bundle := policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(rego)}}
	resource := xds.Resource{Name: xds.Name{Type: xds.TypePolicy, Name: "policy"}, Body: &pb.Policy{Revision: bundle.Revision(), Files: bundle.Files}}
	if err := f.xds.SetFleet(f.revision.Add(1), []xds.Resource{resource}, nil); err != nil {
		f.t.Fatal(err)
	}
}

// applied waits until extauthz runs what was pushed last.
func (f *fixture) applied() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.xds.Applied(ctx, f.revision.Load()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) eventually(what string, is func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			f.t.Fatalf("never happened: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// token makes one for a server; scopes nil: not narrowed.
func (f *fixture) token(server string, scopes ...string) (id, value string) {
	text := token.New(token.Access, macKey).Reveal()
	id = "token-" + text[7:15]
	f.control.mu.Lock()
	defer f.control.mu.Unlock()
	f.control.tokens[token.DigestOf(text)] = &pb.ResolveResponse{
		TokenId: id, Name: "Zoë", ServerId: server, Scopes: scopes, Narrowed: scopes != nil,
	}
	return id, text
}

// expire changes when a token ends.
func (f *fixture) expire(value string, at time.Time) {
	f.control.mu.Lock()
	defer f.control.mu.Unlock()
	f.control.tokens[token.DigestOf(value)].ExpiresUnix = at.Unix()
}

// revoke appends an entry and waits for the confirmation.
func (f *fixture) revoke(kind revocation.Kind, key string) revocation.Result {
	f.t.Helper()
	f.control.mu.Lock()
	seq := int64(len(f.control.entries) + 1)
	f.control.entries = append(f.control.entries, revocation.Entry{
		Seq: seq, Kind: kind, Key: key, Until: time.Now().Add(revocation.Life(time.Minute)),
	})
	f.control.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result, err := f.hub.Confirmed(ctx, revocation.Change{Seq: seq, What: revocation.Key{Kind: kind, Key: key}})
	if err != nil {
		f.t.Fatal(err)
	}
	return result
}

func gateway() *pb.Gateway {
	return &pb.Gateway{BaseUrl: baseURL, Hosts: []string{"other.example"}, SessionSeconds: 3600, StreamsPerCredential: 3}
}

func keys() *pb.Keys {
	return &pb.Keys{TokenMac: macKey[:], SessionKeys: []*pb.SessionKey{{Id: 1, Key: bytes.Repeat([]byte{7}, 32)}}}
}

// newServer is a legacy server with both transports on a loopback address.
func newServer(edits ...func(*pb.Server)) *pb.Server {
	srv := &pb.Server{
		Id: identity.NewServerID().String(), Name: "demo", Enabled: true, Legacy: true,
		Mcp:     &pb.Upstream{Url: "http://127.0.0.1:9001/base/mcp", Cluster: "plain"},
		Rpc:     &pb.Upstream{Url: "https://127.0.0.1:9443/rpc", Cluster: "tls-system"},
		MaxBody: 4 << 20, CallLimitSeconds: 600,
	}
	for _, edit := range edits {
		edit(srv)
	}
	return srv
}

// request is what Envoy would send for one HTTP request.
type request struct {
	method  string // default POST
	path    string
	host    string // default the base URL's
	header  [][2]string
	body    string
	partial string // x-envoy-auth-partial-body; default "false" with a body
	size    int64  // default the body's
}

func (r request) with(name, value string) request {
	header := append([][2]string(nil), r.header...)
	r.header = append(header, [2]string{name, value})
	return r
}

// without drops every line of a header.
func (r request) without(name string) request {
	var header [][2]string
	for _, line := range r.header {
		if line[0] != name {
			header = append(header, line)
		}
	}
	r.header = header
	return r
}

func (r request) proto() *authv3.CheckRequest {
	if r.method == "" {
		r.method = "POST"
	}
	if r.host == "" {
		r.host = "localhost:8443"
	}
	if r.size == 0 {
		r.size = int64(len(r.body))
	}
	lines := &corev3.HeaderMap{}
	for _, line := range r.header {
		lines.Headers = append(lines.Headers, &corev3.HeaderValue{Key: line[0], RawValue: []byte(line[1])})
	}
	if r.body != "" {
		if r.partial == "" {
			r.partial = "false"
		}
		lines.Headers = append(lines.Headers, &corev3.HeaderValue{Key: "x-envoy-auth-partial-body", RawValue: []byte(r.partial)})
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{
			Method: r.method, Path: r.path, Host: r.host, HeaderMap: lines, RawBody: []byte(r.body), Size: r.size,
		},
	}}}
}

// check asks Check as Envoy does.
func (f *fixture) check(r request) (*authv3.CheckResponse, error) {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(
		"x-arbiter-stream", "request-1", "x-arbiter-peer-address", "192.0.2.1:5555",
	))
	return ask(ctx, f.server, r.proto())
}

// ask asks Check in the form that it has on the wire.
func ask(ctx context.Context, server *extauthz.Server, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	message, err := proto.Marshal(in)
	if err != nil {
		return nil, err
	}
	answer, err := server.Check(ctx, message)
	if err != nil {
		return nil, err
	}
	out := new(authv3.CheckResponse)
	return out, proto.Unmarshal(answer, out)
}

func (f *fixture) mustCheck(r request) *authv3.CheckResponse {
	f.t.Helper()
	out, err := f.check(r)
	for again := 0; err != nil && errors.Is(f.faults.last(), policies.ErrDeadline) && again < 20; again++ { // a busy machine
		out, err = f.check(r)
	}
	if err != nil {
		f.t.Fatalf("Check: %v: %v", err, f.faults.last())
	}
	return out
}

// rpcCall is a proper request on /rpc.
func rpcCall(server, token, body string) request {
	return request{path: "/servers/" + server + "/rpc", body: body, header: [][2]string{
		{"authorization", "Bearer " + token}, {"content-type", "application/json"},
	}}
}

// mcpCall is a proper request on /mcp.
func mcpCall(server, token, body string) request {
	r := rpcCall(server, token, body).with("accept", "application/json, text/event-stream")
	r.path = "/servers/" + server + "/mcp"
	return r
}

// headersOf are the headers of a denial or the request headers of an allow.
func headersOf(out *authv3.CheckResponse) map[string]string {
	options := out.GetDeniedResponse().GetHeaders()
	if out.GetOkResponse() != nil {
		options = out.GetOkResponse().GetHeaders()
	}
	found := map[string]string{}
	for _, option := range options {
		found[option.GetHeader().GetKey()] = option.GetHeader().GetValue()
	}
	return found
}
