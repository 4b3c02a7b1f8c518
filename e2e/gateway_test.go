//go:build e2e

// Package e2e attacks and uses the gateway as its callers do: the built binary,
// the real Envoy, real clients. Nothing here looks inside.
package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// arbiter is the binary under test; TestMain builds it.
var arbiter string

// shared is a gateway that tests may use together: each adds servers of its
// own and changes nothing else.
var shared *gateway

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "arbiter-e2e")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	arbiter = filepath.Join(dir, "arbiter")
	build := exec.Command("go", "build", "-o", arbiter, "../cmd/arbiter")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building arbiter: %v\n%s", err, out)
		return 1
	}
	shared, err = launch(filepath.Join(dir, "shared"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.stop()
	return m.Run()
}

// gateway is one running `arbiter up`.
type gateway struct {
	dir   string // data directory
	addr  string // ip:port of Envoy's listener
	base  string // public origin
	cmd   *exec.Cmd
	out   *bytes.Buffer // stdout, complete once ready
	log   *os.File
	roots *x509.CertPool
	ended chan struct{}
	env   []string
}

// start runs a gateway for one test.
func start(t *testing.T, env ...string) *gateway {
	t.Helper()
	g, err := launch(t.TempDir(), env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.stop()
		if t.Failed() {
			log, _ := os.ReadFile(g.log.Name())
			t.Logf("log of the gateway:\n%s", tail(log, 8<<10))
		}
	})
	return g
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// launch starts `arbiter up` on a free port and waits for the ready block.
func launch(dir string, env ...string) (*gateway, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	return launchAt(dir, addr, env...)
}

func launchAt(dir, addr string, env ...string) (*gateway, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	g := &gateway{dir: dir, addr: addr, base: "https://localhost:" + port, out: new(bytes.Buffer), ended: make(chan struct{})}
	g.env = append(append(os.Environ(), "ARBITER_DATA="+dir, "ARBITER_LISTEN="+addr), env...)
	var err error
	if g.log, err = os.OpenFile(filepath.Join(dir, "stderr.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	g.cmd = exec.Command(arbiter, "up")
	g.cmd.Env, g.cmd.Stderr = g.env, g.log
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go func() {
		defer close(g.ended)
		buf := make([]byte, 4096)
		for seen := false; ; {
			n, err := stdout.Read(buf)
			g.out.Write(buf[:n])
			if !seen && bytes.Contains(g.out.Bytes(), []byte("Ctrl-C ends it.")) {
				seen = true
				close(ready)
			}
			if err != nil {
				break
			}
		}
		_ = g.cmd.Wait()
	}()
	select {
	case <-ready:
	case <-g.ended:
		log, _ := os.ReadFile(g.log.Name())
		return nil, fmt.Errorf("arbiter up ended before it was ready:\n%s", log)
	case <-time.After(90 * time.Second):
		g.stop()
		log, _ := os.ReadFile(g.log.Name())
		return nil, fmt.Errorf("arbiter up was not ready after 90 s:\n%s", log)
	}
	g.roots = x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil && !os.IsNotExist(err) { // none with a given certificate
		return nil, err
	}
	g.roots.AppendCertsFromPEM(pem)
	return g, nil
}

// stop ends the gateway as Ctrl-C does.
func (g *gateway) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-g.ended:
	case <-time.After(20 * time.Second):
		_ = g.cmd.Process.Kill()
		<-g.ended
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// cli runs one command of the command line against this gateway.
func (g *gateway) cli(t *testing.T, stdin string, args ...string) (stdout string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, arbiter, args...)
	cmd.Env, cmd.Stdin = g.env, strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("arbiter %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// object runs a command with --json and reads the API's object.
func (g *gateway) object(t *testing.T, stdin string, args ...string) map[string]any {
	t.Helper()
	out, err := g.cli(t, stdin, append(args, "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{}
	if err := json.Unmarshal([]byte(out), &object); err != nil {
		t.Fatalf("arbiter %s printed %q: %v", strings.Join(args, " "), out, err)
	}
	return object
}

// addServer registers an upstream and returns the server's id. mcp or rpc may
// be "".
func (g *gateway) addServer(t *testing.T, mcp, rpc string, flags ...string) string {
	t.Helper()
	args := []string{"server", "add", strings.ReplaceAll(t.Name(), "/", "-") + "-" + fmt.Sprint(time.Now().UnixNano())}
	if mcp != "" {
		args = append(args, "--mcp", mcp)
	}
	if rpc != "" {
		args = append(args, "--rpc", rpc)
	}
	return g.object(t, "", append(args, flags...)...)["id"].(string)
}

// addToken makes an access token and returns its id and value.
func (g *gateway) addToken(t *testing.T, server string, flags ...string) (id, value string) {
	t.Helper()
	object := g.object(t, "", append([]string{"token", "create", server}, flags...)...)
	return object["id"].(string), object["token"].(string)
}

// transport speaks HTTP/1.1, or HTTP/2, over connections of its own.
func (g *gateway) transport(t *testing.T, http2 bool) *http.Transport {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: g.roots, MinVersion: tls.VersionTLS12},
		Protocols:       protocols, DisableCompression: true,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// reply is one answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// message is the body as a JSON object.
func (r reply) message(t *testing.T) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := json.Unmarshal([]byte(r.body), &object); err != nil {
		t.Fatalf("body %q is no JSON object: %v", r.body, err)
	}
	return object
}

// code is the code of the JSON-RPC error in the body, 0 without one.
func (r reply) code() int {
	var object struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(r.body), &object)
	return object.Error.Code
}

// call is one request; empty fields get what a proper client sends.
type call struct {
	method string // default POST
	path   string // "/servers/{id}/rpc"
	token  string
	header map[string]string // "" removes what would be sent
	host   string
	body   string
	http2  bool
}

func (g *gateway) do(t *testing.T, c call) reply {
	t.Helper()
	out, err := g.try(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (g *gateway) try(t *testing.T, c call) (reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	resp, err := g.open(t, ctx, c)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// open sends a request and returns when the answer's headers are there.
func (g *gateway) open(t *testing.T, ctx context.Context, c call) (*http.Response, error) {
	t.Helper()
	if c.method == "" {
		c.method = http.MethodPost
	}
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, g.base+c.path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, value := range c.header {
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	if c.host != "" {
		req.Host = c.host
	}
	return (&http.Client{
		Transport:     g.transport(t, c.http2),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).Do(req)
}

// raw sends bytes over TLS (HTTP/1.1) and returns everything that comes back
// until the gateway closes, or falls silent for quiet.
func (g *gateway) raw(t *testing.T, request string, quiet time.Duration) string {
	t.Helper()
	conn, err := tls.Dial("tcp", g.addr, &tls.Config{RootCAs: g.roots, ServerName: "localhost", NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	buf := make([]byte, 16<<10)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(quiet))
		n, err := conn.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			return out.String()
		}
	}
}

// rpc is a JSON-RPC request.
func rpc(id, method, params string) string {
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`

// session initialises on /mcp and returns the session id.
func (g *gateway) session(t *testing.T, server, token string) string {
	t.Helper()
	got := g.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: initialize})
	id := got.header.Get("Mcp-Session-Id")
	if got.status != 200 || id == "" {
		t.Fatalf("initialize: status %d, session %q, body %s", got.status, id, got.body)
	}
	g.do(t, call{
		path: "/servers/" + server + "/mcp", token: token, body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		header: map[string]string{"Mcp-Session-Id": id},
	})
	return id
}

// demo returns the id of the demo server.
func (g *gateway) demo(t *testing.T) string {
	t.Helper()
	return g.object(t, "", "server", "show", "demo")["id"].(string)
}
