package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
)

// fleet is what a run starts from: builds of this tree, Envoy, an upstream.
type fleet struct {
	dir      string // of this run, removed at the end
	logs     string
	envoy    string // path of the binary
	arbiter  string
	upstream netip.AddrPort
	running  []*child.Process
}

// newFleet builds what is needed; keep is where logs stay, "" for nowhere.
func newFleet(ctx context.Context, keep string) (*fleet, error) {
	dir, err := os.MkdirTemp("", "arbiter-scale")
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: dir, logs: keep}
	if keep == "" {
		f.logs = dir
	}
	if err := f.prepare(ctx); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) prepare(ctx context.Context) (err error) {
	if err := os.MkdirAll(f.logs, 0o700); err != nil {
		return err
	}
	if f.arbiter, err = f.build(ctx, "./cmd/arbiter"); err != nil {
		return err
	}
	if f.envoy = os.Getenv("ARBITER_ENVOY"); f.envoy == "" {
		out, err := child.Output(child.Command(ctx, "sh", "envoy/fetch.sh"))
		if err != nil {
			return err
		}
		f.envoy = strings.TrimSpace(string(out))
	}
	program, err := f.build(ctx, "./bench/upstream")
	if err != nil {
		return err
	}
	p, addr, err := child.Start(child.Command(ctx, program), "upstream", f.logs, true)
	if err != nil {
		return err
	}
	f.running = append(f.running, p)
	f.upstream, err = netip.ParseAddrPort(addr)
	return err
}

func (f *fleet) build(ctx context.Context, pkg string) (string, error) {
	program := filepath.Join(f.dir, "bin", filepath.Base(pkg))
	_, err := child.Output(child.Command(ctx, "go", "build", "-trimpath", "-o", program, pkg))
	return program, err
}

// close ends what runs, the last first.
func (f *fleet) close() {
	stop(f.running)
	_ = os.RemoveAll(f.dir) // it is a directory for what nobody needs
}

func stop(running []*child.Process) {
	for i := len(running) - 1; i >= 0; i-- {
		running[i].Stop()
	}
}

// usage is what this machine has done up to a moment, and what of it was ours.
// No gateway runs then.
type usage struct {
	at        time.Time
	all, ours time.Duration
}

func (f *fleet) usage() (u usage, err error) {
	if u.ours, err = child.OwnCPU(); err != nil {
		return u, err
	}
	for _, p := range f.running {
		used, err := child.CPU(p.PID())
		if err != nil {
			return u, err
		}
		u.ours += used
	}
	u.at = time.Now()
	machine, err := child.ReadMachine()
	u.all = machine.Busy
	return u, err
}

// quiet is how many cores others may have used for the figures to be worth
// keeping; the kernel's own threads, which write to the disk, are among them.
const quiet = 0.15

// others says whether the figures between two moments can be trusted.
func others(before, after usage) string {
	wall := after.at.Sub(before.at)
	cores := max(0, ((after.all-before.all)-(after.ours-before.ours)).Seconds()/wall.Seconds())
	text := fmt.Sprintf("Other processes used %.2f cores meanwhile. Whole run: %v.\n", cores, wall.Round(time.Second))
	if cores > quiet {
		text += fmt.Sprintf("\n**More than %.2f cores: figures of a busy machine. Measure again.**\n", quiet)
	}
	return text
}

// gateway is one control with its pairs of extauthz and Envoy, in one data
// directory.
type gateway struct {
	*fleet

	name    string
	dir     string
	control *child.Process
	pairs   []*pair
	api     *api
}

// pair is one extauthz and its Envoy.
type pair struct {
	number   string // "" of the first
	listen   netip.AddrPort
	extauthz *child.Process
	runner   *child.Process // arbiter envoy
	envoy    int            // process id of Envoy itself
	client   *client
}

const readyWithin = 60 * time.Second

// start runs a gateway of n pairs and waits until all of it is ready.
func (f *fleet) start(ctx context.Context, name string, n int) (*gateway, error) {
	g := &gateway{fleet: f, name: name, dir: filepath.Join(f.dir, name)}
	g.api = newAPI(filepath.Join(g.dir, "admin.sock"))
	if err := g.startControl(ctx); err != nil {
		return nil, err
	}
	for i := range n {
		p := &pair{}
		if i > 0 {
			p.number = strconv.Itoa(i + 1)
		}
		g.pairs = append(g.pairs, p)
		if err := g.startPair(ctx, p); err != nil {
			g.stop()
			return nil, err
		}
	}
	if err := child.Poll(ctx, g.control, 50*time.Millisecond, readyWithin, g.api.ready); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

// stop ends the gateway: its pairs, then control.
func (g *gateway) stop() {
	g.api.close()
	for _, p := range g.pairs {
		if p.client != nil {
			p.client.close()
		}
		for _, process := range []*child.Process{p.runner, p.extauthz} {
			if process != nil {
				process.Stop()
			}
		}
	}
	g.control.Stop()
}

// role starts one role of a pair; "" is the first pair, or none.
func (g *gateway) role(ctx context.Context, role, pair string, env ...string) (*child.Process, error) {
	cmd := child.Command(ctx, g.arbiter, role)
	cmd.Env = append(cmd.Env, "ARBITER_DATA="+g.dir, "ARBITER_ENVOY="+g.envoy, "ARBITER_PROFILE=true")
	if pair != "" {
		cmd.Env = append(cmd.Env, "ARBITER_INSTANCE="+pair)
	}
	cmd.Env = append(cmd.Env, env...)
	p, _, err := child.Start(cmd, g.name+"-"+role+pair, g.logs, false)
	return p, err
}

// startControl runs control until its API answers.
func (g *gateway) startControl(ctx context.Context) (err error) {
	if g.control, err = g.role(ctx, "control", ""); err != nil {
		return err
	}
	return child.Poll(ctx, g.control, time.Millisecond, readyWithin, g.api.alive)
}

// startPair runs a pair until its Envoy listens and its extauthz decides.
func (g *gateway) startPair(ctx context.Context, p *pair) (err error) {
	if p.listen, err = freePort(); err != nil {
		return err
	}
	if p.extauthz, err = g.role(ctx, "extauthz", p.number); err != nil {
		return err
	}
	if p.runner, err = g.role(ctx, "envoy", p.number, "ARBITER_LISTEN="+p.listen.String(), "ARBITER_ENVOY_CONCURRENCY=2"); err != nil {
		return err
	}
	err = child.Poll(ctx, p.runner, 20*time.Millisecond, readyWithin, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.listen.String())
		if err == nil {
			_ = conn.Close() // it was only to see whether anybody listens
		}
		return err
	})
	if err != nil {
		return err
	}
	own := newAPI(g.adminOf(p))
	defer own.close()
	if err := child.Poll(ctx, p.extauthz, 20*time.Millisecond, readyWithin, own.ready); err != nil {
		return err
	}
	of, err := child.Children(p.runner.PID())
	if err != nil || len(of) != 1 {
		return fmt.Errorf("looking for the Envoy of pair %q: %d children, %w", p.number, len(of), err)
	}
	p.envoy = of[0]
	p.client, err = newClient(g.dir, p.listen)
	return err
}

// restart ends the process of a role and runs it anew; the time of the start is
// returned.
func (g *gateway) restart(ctx context.Context, process **child.Process, role, pair string) (time.Time, error) {
	(*process).Stop()
	began := time.Now()
	p, err := g.role(ctx, role, pair)
	if err == nil {
		*process = p
	}
	return began, err
}

// adminOf is the socket of an extauthz' health and metrics.
func (g *gateway) adminOf(p *pair) string {
	name := "extauthz-admin"
	if p.number != "" {
		name += "-" + p.number
	}
	return filepath.Join(g.dir, "run", name+".sock")
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
