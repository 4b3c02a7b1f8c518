package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/arbiter-gateway/arbiter/control"
	"github.com/arbiter-gateway/arbiter/internal/journal"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/internal/servercert"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
	"github.com/arbiter-gateway/arbiter/xds"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// fixture is a control on sockets of its own, over a real store.
type fixture struct {
	t       *testing.T
	dir     string
	store   *store.Store
	admin   *http.Client
	conn    *grpc.ClientConn
	control pb.ControlClient
	running *control.Control
	stop    func()
}

func newFixture(t *testing.T, edit func(*control.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir()}
	var err error
	if f.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(f.dir, "arbiter.db"), Key: [32]byte{1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.store.Close() })
	f.start(edit)
	return f
}

// start runs a control over the fixture's store.
func (f *fixture) start(edit func(*control.Config)) {
	t := f.t
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cert, err := servercert.New(servercert.Config{Dir: f.dir, Hosts: []string{"localhost"}, Slog: log})
	if err != nil {
		t.Fatal(err)
	}
	dir := f.dir
	listen := func(name string) net.Listener {
		listener, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	at, err := f.store.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	past, err := journal.Open(dir, at.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = past.Close() })
	cfg := control.Config{
		Journal: past,
		Store:   f.store, Cert: cert, Lease: 5 * time.Second, Registry: prometheus.NewRegistry(), Slog: log,
		XDS: listen("xds.sock"), Admin: listen("admin.sock"),
		Envoy:   xds.State{SystemRoots: "/etc/ssl/certs/ca-certificates.crt"},
		Gateway: control.Gateway{BaseURL: "https://localhost:8443", Session: time.Hour, StreamsPerCredential: 256},
	}
	if edit != nil {
		edit(&cfg)
	}
	c, err := control.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.running = c
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var once sync.Once
	f.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("control ended with %v", err)
			}
		})
	}
	t.Cleanup(f.stop)
	f.admin = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "admin.sock"))
	}}}
	if f.conn != nil {
		return // it connects again by itself
	}
	f.conn, err = grpc.NewClient("unix:"+filepath.Join(dir, "xds.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.conn.Close() })
	f.control = pb.NewControlClient(f.conn)
}

// follower is what one extauthz has been pushed.
type follower struct {
	mu       sync.Mutex // guards the rest
	servers  map[string]*pb.Server
	gateways []*pb.Gateway
	loaded   bool
}

var fleetTypes = []string{xds.TypeServer, xds.TypeKeys, xds.TypeGateway}

// follow runs a delta client until the test ends or stop is called.
func (f *fixture) follow(to *follower) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- client.Run(ctx, client.Config{Conn: f.conn, Node: "extauthz-test", Types: fleetTypes, Apply: to.apply, Log: slog.New(slog.DiscardHandler)})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			f.t.Errorf("following: %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

func (to *follower) apply(u client.Update) error {
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, r := range u.Changed {
		switch u.Type {
		case xds.TypeServer:
			srv := &pb.Server{}
			if err := r.Body.UnmarshalTo(srv); err != nil {
				return err
			}
			to.servers[r.Name] = srv
		case xds.TypeGateway:
			g := &pb.Gateway{}
			if err := r.Body.UnmarshalTo(g); err != nil {
				return err
			}
			to.gateways = append(to.gateways, g)
		}
	}
	for _, name := range u.Removed {
		delete(to.servers, name)
	}
	to.loaded = to.loaded || u.Complete && u.Type == xds.TypeServer
	return nil
}

func (to *follower) server(id string) *pb.Server {
	to.mu.Lock()
	defer to.mu.Unlock()
	return to.servers[id]
}

func (f *fixture) eventually(what string, is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("never happened: %s", what)
		}
	}
}

func newServer(name string) store.Server {
	return store.Server{Name: name, Enabled: true, MCP: "https://mcp.example/mcp", RPC: "http://127.0.0.1:9/rpc", Legacy: true}
}

func TestFeedPushesEachChange(t *testing.T) {
	f := newFixture(t, nil)
	to := &follower{servers: map[string]*pb.Server{}}
	f.follow(to)
	made, err := f.store.CreateServer(t.Context(), newServer("one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := made.ID.String()
	f.eventually("the new server is pushed", func() bool { return to.server(id) != nil })
	want := &pb.Server{
		Id: id, Name: "one", Enabled: true, Legacy: true, MaxBody: store.DefaultMaxBody, CallLimitSeconds: uint32(store.DefaultCallLimit / time.Second),
		Mcp: &pb.Upstream{Url: "https://mcp.example/mcp", Cluster: "tls-system"}, Rpc: &pb.Upstream{Url: "http://127.0.0.1:9/rpc", Cluster: "plain"},
	}
	if got := to.server(id); !proto.Equal(got, want) {
		t.Errorf("pushed %v, want %v", got, want)
	}
	if _, err := f.store.UpdateServer(t.Context(), made.ID, func(s *store.Server) error { s.Enabled = false; return nil }, nil); err != nil {
		t.Fatal(err)
	}
	f.eventually("the change is pushed", func() bool { return !to.server(id).GetEnabled() })
	if _, err := f.store.DeleteServer(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	f.eventually("the removal is pushed", func() bool { return to.server(id) == nil })
}

// A replica that outlives control has to hear of settings that changed with
// the restart, although no revision did.
func TestRestartWithOtherSettingsReachesConnectedReplicas(t *testing.T) {
	f := newFixture(t, nil)
	to := &follower{servers: map[string]*pb.Server{}}
	f.follow(to)
	hosts := func() []string {
		to.mu.Lock()
		defer to.mu.Unlock()
		if !to.loaded || len(to.gateways) == 0 {
			return nil
		}
		return append([]string{"loaded"}, to.gateways[len(to.gateways)-1].GetHosts()...)
	}
	f.eventually("the settings came", func() bool { return len(hosts()) == 1 })
	f.stop()
	f.start(func(c *control.Config) { c.Gateway.Hosts = []string{"new.example"} })
	f.eventually("the new settings came", func() bool { return len(hosts()) == 2 })
}

func TestControlService(t *testing.T) {
	f := newFixture(t, nil)
	srv, err := f.store.CreateServer(t.Context(), newServer("one"), []store.Header{{Name: "X-Key", Value: secret.New("canary")}})
	if err != nil {
		t.Fatal(err)
	}
	digest := token.DigestOf("a token")
	made, err := f.store.CreateToken(t.Context(), store.AccessToken{Server: srv.ID, Name: "ci", Scopes: []string{"mcp:connect"}, Digest: digest})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("resolve", func(t *testing.T) {
		got, err := f.control.Resolve(t.Context(), &pb.ResolveRequest{Digest: digest[:]})
		at, posErr := f.store.Position(t.Context())
		want := &pb.ResolveResponse{
			TokenId: made.ID, Name: "ci", ServerId: srv.ID.String(), Scopes: []string{"mcp:connect"}, Narrowed: true,
			Database: at.Database, Epoch: 1,
		}
		if posErr != nil {
			t.Fatal(posErr)
		}
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("upstream headers", func(t *testing.T) {
		got, err := f.control.UpstreamHeaders(t.Context(), &pb.UpstreamHeadersRequest{ServerId: srv.ID.String()})
		if err != nil || len(got.GetHeaders()) != 1 || got.GetHeaders()[0].GetValue() != "canary" || got.GetHeadersRevision() != srv.HeadersRevision {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("records tell the last use", func(t *testing.T) {
		at := time.Now().UTC().Truncate(time.Second)
		line, err := json.Marshal(map[string]any{"decision_id": "r1", "timestamp": at, "outcome": "allow", "credential": made.ID})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.control.Record(t.Context(), &pb.RecordRequest{Records: [][]byte{line}}); err != nil {
			t.Fatal(err)
		}
		if got, err := f.store.Decision(t.Context(), "r1"); err != nil || string(got.JSON) != string(line) {
			t.Errorf("kept %s, %v", got.JSON, err)
		}
		if got, err := f.store.Token(t.Context(), srv.ID, made.ID); err != nil || !got.LastUsedAt.Equal(at) {
			t.Errorf("last used %v, %v", got.LastUsedAt, err)
		}
	})
	t.Run("so does what is used without a record", func(t *testing.T) {
		at := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
		if _, err := f.control.Record(t.Context(), &pb.RecordRequest{Used: []*pb.Used{{Credential: made.ID, UnixMs: at.UnixMilli()}}}); err != nil {
			t.Fatal(err)
		}
		if got, err := f.store.Token(t.Context(), srv.ID, made.ID); err != nil || !got.LastUsedAt.Equal(at) {
			t.Errorf("last used %v, %v", got.LastUsedAt, err)
		}
	})
	for _, row := range []struct {
		name string
		do   func() error
		want codes.Code
	}{
		{"digest too short", func() error {
			_, err := f.control.Resolve(t.Context(), &pb.ResolveRequest{Digest: []byte("x")})
			return err
		}, codes.InvalidArgument},
		{"unknown digest", func() error {
			_, err := f.control.Resolve(t.Context(), &pb.ResolveRequest{Digest: make([]byte, 32)})
			return err
		}, codes.NotFound},
		{"no server id", func() error {
			_, err := f.control.UpstreamHeaders(t.Context(), &pb.UpstreamHeadersRequest{})
			return err
		}, codes.InvalidArgument},
		{"record that is no JSON", func() error {
			_, err := f.control.Record(t.Context(), &pb.RecordRequest{Records: [][]byte{[]byte("x")}})
			return err
		}, codes.InvalidArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := status.Code(row.do()); got != row.want {
				t.Errorf("code %v, want %v", got, row.want)
			}
		})
	}
}

func TestAdminSocket(t *testing.T) {
	f := newFixture(t, nil)
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := f.admin.Get("http://arbiter" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, row := range []struct {
		path   string
		status int
		body   string
	}{
		{"/livez", 200, "ok"},
		{"/readyz", 503, "no Envoy is connected"},
		{"/metrics", 200, ""},
		{"/api/v1/servers", 200, `"items"`},
		{"/nothing", 404, ""},
	} {
		if status, body := get(row.path); status != row.status || !strings.Contains(body, row.body) {
			t.Errorf("%s: %d %s, want %d with %q", row.path, status, body, row.status, row.body)
		}
	}
}
