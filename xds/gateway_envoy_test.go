package xds_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/envoy"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/xds"
)

// gateway is a real Envoy, configured by the real xDS server, in front of a
// Check and a Guard that the test scripts.
type gateway struct {
	t         *testing.T
	dir       string
	url       string
	authority authority
	state     xds.State
	place     xds.Place
	server    *xds.Server
	runner    *envoy.Runner
	extauthz  *fakeExtauthz

	stopExtauthz, stopControl func()
}

// fakeExtauthz answers as the test says, per server id in the path.
type fakeExtauthz struct {
	authv3.UnimplementedAuthorizationServer
	procv3.UnimplementedExternalProcessorServer

	mu     sync.Mutex
	checks map[string]func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error)
	guards map[string]func(procv3.ExternalProcessor_ProcessServer, *procv3.ProcessingRequest) error
	asked  int // Checks of any path
}

func (f *fakeExtauthz) Check(ctx context.Context, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	path := in.GetAttributes().GetRequest().GetHttp().GetPath()
	f.mu.Lock()
	f.asked++
	var answer func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error)
	for id, a := range f.checks {
		if strings.HasPrefix(path, "/servers/"+id+"/") {
			answer = a
		}
	}
	f.mu.Unlock()
	if answer == nil {
		return deny(401, `{"ours":"no such server"}`), nil
	}
	return answer(ctx, in)
}

// Process finds the test's Guard by the server id that Check's metadata carries.
func (f *fakeExtauthz) Process(stream procv3.ExternalProcessor_ProcessServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	id := first.GetMetadataContext().GetFilterMetadata()["envoy.filters.http.ext_authz"].GetFields()["server"].GetStringValue()
	f.mu.Lock()
	guard := f.guards[id]
	f.mu.Unlock()
	if guard == nil {
		return status.Error(codes.Internal, "the test expected no answer of this server at Guard")
	}
	return guard(stream, first)
}

func (f *fakeExtauthz) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// startGateway runs everything and waits until Envoy serves.
func startGateway(t *testing.T, edit func(*xds.State)) *gateway {
	t.Helper()
	dir, err := os.MkdirTemp("", "arb") // t.TempDir is too long for unix sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	g := &gateway{t: t, dir: dir, authority: newAuthority(t), extauthz: &fakeExtauthz{
		checks: map[string]func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error){},
		guards: map[string]func(procv3.ExternalProcessor_ProcessServer, *procv3.ProcessingRequest) error{},
	}}
	certificate, key := g.authority.issue(t, "localhost")
	roots := filepath.Join(dir, "roots.pem")
	g.write(roots, g.authority.pem)
	g.state = xds.State{
		Certificate: certificate, Key: secret.New(key), SystemRoots: roots,
		Times: xds.Times{Check: time.Second, Request: 2 * time.Second, RequestHeaders: 2 * time.Second},
	}
	g.place = xds.Place{
		Listen:   netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t)),
		Extauthz: filepath.Join(dir, "extauthz.sock"),
	}
	if edit != nil {
		edit(&g.state)
	}
	g.url = fmt.Sprintf("https://localhost:%d", g.place.Listen.Port())
	g.startExtauthz()
	g.startControl()
	g.startEnvoy()
	return g
}

func (g *gateway) startExtauthz() {
	g.t.Helper()
	server := grpc.NewServer(grpc.MaxRecvMsgSize(8 << 20)) // the default is less than a message with MaxBody
	authv3.RegisterAuthorizationServer(server, g.extauthz)
	procv3.RegisterExternalProcessorServer(server, g.extauthz)
	g.stopExtauthz = serveGRPC(g.t, server, g.place.Extauthz)
}

func (g *gateway) startControl() {
	g.t.Helper()
	server, err := xds.New(xds.Config{Log: testLog(g.t)})
	if err != nil {
		g.t.Fatal(err)
	}
	g.server = server
	transport := grpc.NewServer(xds.ServerOptions()...)
	server.Register(transport)
	g.stopControl = serveGRPC(g.t, transport, filepath.Join(g.dir, "xds.sock"))
	if err := server.SetEnvoy(g.state); err != nil {
		g.t.Fatal(err)
	}
}

// startEnvoy runs the Envoy that the tests talk to, and waits for it.
func (g *gateway) startEnvoy() {
	g.t.Helper()
	g.runner = g.envoyAt("envoy-test", g.place)
	soon, stop := context.WithTimeout(g.t.Context(), 20*time.Second)
	defer stop()
	if err := g.runner.Ready(soon); err != nil {
		g.t.Fatal(err)
	}
	if err := g.server.Applied(soon, 0); err != nil {
		g.t.Fatal(err)
	}
}

// envoyAt runs an Envoy of a place until the test ends.
func (g *gateway) envoyAt(node string, place xds.Place) *envoy.Runner {
	g.t.Helper()
	metadata, err := place.Metadata()
	if err != nil {
		g.t.Fatal(err)
	}
	admin, file := filepath.Join(g.dir, node+".sock"), filepath.Join(g.dir, node+".json")
	bootstrap, err := envoy.Bootstrap(envoy.Config{
		Node: node, Metadata: metadata, XDSSocket: filepath.Join(g.dir, "xds.sock"), AdminSocket: admin,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.write(file, string(bootstrap))
	runner, err := envoy.NewRunner(envoy.RunnerConfig{
		Path: findEnvoy(g.t), BootstrapFile: file, AdminSocket: admin, Concurrency: 2, Log: testLog(g.t),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	g.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			g.t.Errorf("envoy: %v", err)
		}
	})
	return runner
}

func (g *gateway) write(path, text string) {
	g.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// check scripts Check for a new server and returns its id.
func (g *gateway) check(answer func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error)) string {
	id := identity.NewServerID().String()
	g.extauthz.mu.Lock()
	defer g.extauthz.mu.Unlock()
	g.extauthz.checks[id] = answer
	return id
}

// route makes a server of which every request goes to one upstream.
func (g *gateway) route(to target) string {
	var id string
	id = g.check(func(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
		to := to
		to.server = id
		return to.allow(), nil
	})
	return id
}

func (g *gateway) guard(id string, answer func(procv3.ExternalProcessor_ProcessServer, *procv3.ProcessingRequest) error) {
	g.extauthz.mu.Lock()
	defer g.extauthz.mu.Unlock()
	g.extauthz.guards[id] = answer
}

// client speaks HTTP/1.1 or HTTP/2, each with a tls.Config of its own.
func (g *gateway) client(http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: g.authority.pool(), ServerName: "localhost"},
		Protocols:       protocols, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", g.place.Listen.String())
		},
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// result is an answer that was read to its end.
type result struct {
	status int
	header http.Header
	body   string
}

func (g *gateway) do(t *testing.T, c *http.Client, method, path, body string, headers ...string) result {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, answer)
}

func read(t *testing.T, answer *http.Response) result {
	t.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%d %v: %v", answer.StatusCode, answer.Header, err)
	}
	return result{answer.StatusCode, answer.Header, string(text)}
}

func serveGRPC(t *testing.T, server *grpc.Server, socket string) (stop func()) {
	t.Helper()
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	var once sync.Once
	stop = func() { once.Do(func() { server.Stop(); <-done }) }
	t.Cleanup(stop)
	return stop
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

// testLog shows records only of tests that fail, or with -v.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
