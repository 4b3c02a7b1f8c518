package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
)

// Paths of the upstream.
const (
	jsonPath = "/json"
	ssePath  = "/sse"
)

const (
	readyWithin = 60 * time.Second
	pollEvery   = 50 * time.Millisecond
)

// fleet is everything that runs while the benchmark does.
type fleet struct {
	dir      string // of this run, removed at the end
	envoy    string // path of the binary
	upstream netip.AddrPort
	running  []*child.Process

	upstreamPID int
}

// stop ends all processes, the last first.
func (f *fleet) stop() {
	for i := len(f.running) - 1; i >= 0; i-- {
		f.running[i].Stop()
	}
}

// alive reports the first process that should run and does not.
func (f *fleet) alive() error {
	for _, p := range f.running {
		if err := p.Running(); err != nil {
			return err
		}
	}
	return nil
}

// build builds one program of this tree.
func (f *fleet) build(ctx context.Context, pkg string) (string, error) {
	program := filepath.Join(f.dir, "bin", filepath.Base(pkg))
	_, err := child.Output(child.Command(ctx, "go", "build", "-trimpath", "-o", program, pkg))
	return program, err
}

// findEnvoy is $ARBITER_ENVOY, or what envoy/fetch.sh has in its cache.
func findEnvoy(ctx context.Context) (string, error) {
	if path := os.Getenv("ARBITER_ENVOY"); path != "" {
		return path, nil
	}
	out, err := child.Output(child.Command(ctx, "sh", "envoy/fetch.sh"))
	return strings.TrimSpace(string(out)), err
}

func (f *fleet) startUpstream(ctx context.Context) error {
	program, err := f.build(ctx, "./bench/upstream")
	if err != nil {
		return err
	}
	p, addr, err := child.Start(child.Command(ctx, program), "upstream", f.dir, true)
	if err != nil {
		return err
	}
	f.running, f.upstreamPID = append(f.running, p), p.PID()
	f.upstream, err = netip.ParseAddrPort(addr)
	return err
}

// startNoop runs the stock server and returns its socket and process id.
func (f *fleet) startNoop(ctx context.Context) (socket string, pid int, err error) {
	program, err := f.build(ctx, "./bench/noop")
	if err != nil {
		return "", 0, err
	}
	socket = filepath.Join(f.dir, "noop.sock")
	p, _, err := child.Start(child.Command(ctx, program, "-socket", socket), "noop-server", f.dir, true)
	if err != nil {
		return "", 0, err
	}
	f.running = append(f.running, p)
	return socket, p.PID(), nil
}

// startBaseline runs an Envoy without Arbiter and returns its process id.
func (f *fleet) startBaseline(ctx context.Context, name string, like *arbiter, b baseline) (int, error) {
	as, err := dump(ctx, like)
	if err != nil {
		return 0, err
	}
	text, err := b.bootstrap(as)
	if err != nil {
		return 0, fmt.Errorf("configuring %s: %w", name, err)
	}
	file := filepath.Join(f.dir, name+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return 0, err
	}
	cmd := child.Command(ctx, f.envoy, "--config-path", file, "--disable-hot-restart", "--log-level", "warning")
	p, _, err := child.Start(cmd, name, f.dir, false)
	if err != nil {
		return 0, err
	}
	f.running = append(f.running, p)
	return p.PID(), child.Poll(ctx, p, pollEvery, readyWithin, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.listen.String())
		if err == nil {
			_ = conn.Close() // it was only to see whether anybody listens
		}
		return err
	})
}

// arbiter is one Arbiter with a process per role.
type arbiter struct {
	program string
	dir     string // data directory
	listen  netip.AddrPort
	env     []string
	parts   map[string]int // process ids: envoy, authz, control
}

// startArbiter runs the three roles of one build in a data directory.
func (f *fleet) startArbiter(ctx context.Context, name, program string, env ...string) (*arbiter, error) {
	listen, err := freePort()
	if err != nil {
		return nil, err
	}
	a := &arbiter{program: program, dir: filepath.Join(f.dir, name), listen: listen, parts: map[string]int{}}
	a.env = append([]string{"ARBITER_DATA=" + a.dir, "ARBITER_LISTEN=" + listen.String(), "ARBITER_ENVOY=" + f.envoy}, env...)
	var last *child.Process
	for _, role := range []string{"control", "extauthz", "envoy"} {
		cmd := a.command(ctx, role)
		if last, _, err = child.Start(cmd, name+"-"+role, f.dir, false); err != nil {
			return nil, err
		}
		f.running = append(f.running, last)
		a.parts[role] = last.PID()
	}
	if err := child.Poll(ctx, last, pollEvery, readyWithin, a.ready); err != nil {
		return nil, errors.Join(err, f.alive())
	}
	of, err := child.Children(a.parts["envoy"])
	if err != nil || len(of) != 1 {
		return nil, fmt.Errorf("looking for the Envoy of %s: %d children, %w", name, len(of), err)
	}
	a.parts = map[string]int{"envoy": of[0], "authz": a.parts["extauthz"], "control": a.parts["control"]}
	return a, nil
}

func (g *arbiter) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := child.Command(ctx, g.program, args...)
	cmd.Env = append(cmd.Env, g.env...)
	return cmd
}

// ready asks control whether anything is missing.
func (g *arbiter) ready(ctx context.Context) error {
	_, err := fetch(ctx, filepath.Join(g.dir, "admin.sock"), "/readyz")
	return err
}

// object runs a command of the command line and reads the object it prints.
func (g *arbiter) object(ctx context.Context, into any, args ...string) error {
	out, err := child.Output(g.command(ctx, append(args, "--json")...))
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// addServer puts the upstream behind the gateway and returns the server's id.
func (g *arbiter) addServer(ctx context.Context, name string, upstream netip.AddrPort, path string) (id string, err error) {
	url := "http://" + upstream.String() + path
	var made struct{ ID string }
	err = g.object(ctx, &made, "server", "add", name, "--rpc", url, "--mcp", url)
	return made.ID, err
}

// addToken makes an access token and returns its value.
func (g *arbiter) addToken(ctx context.Context, server string) (string, error) {
	var made struct{ Token string }
	err := g.object(ctx, &made, "token", "create", server)
	return made.Token, err
}

// fetch gets a path of an admin socket; what is not 200 is an error.
func fetch(ctx context.Context, socket, path string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	defer client.CloseIdleConnections()
	got, err := ask(ctx, client, call{http.MethodGet, "http://admin" + path, nil, ""})
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("%s answered %d: %s", path, got.status, got.text)
	}
	return got.text, err
}

// freePort finds a port that nobody listens on.
func freePort() (netip.AddrPort, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort(), nil
}
