//go:build e2e

package e2e

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// fleet is one control and any number of pairs, each role a process of its own,
// in one data directory. As a gateway it is that of the first pair.
type fleet struct {
	*gateway
	control *process
	pairs   []*pair
}

// pair is an Envoy with the extauthz beside it. As a gateway its requests go
// to this Envoy.
type pair struct {
	*gateway
	extauthz, envoy *process
}

// process is one role that can be taken away and brought back. After start its
// exec.Cmd is that of the newest one.
type process struct {
	*exec.Cmd
	name  string // "control", "extauthz", "envoy-2"
	role  string
	env   []string
	log   *os.File      // of all that ran under this name
	ended chan struct{} // closed when the newest one has ended
}

// fleetWithin is how long a fleet may take to be ready: so many processes start
// at once, on a machine that has other things to do.
const fleetWithin = 90 * time.Second

// startFleet runs a control and n pairs until the test ends, and returns when
// every pair answers and control knows them all. The environment is everybody's.
func startFleet(t *testing.T, n int, env ...string) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "arb") // t.TempDir can be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	addrs := closedPorts(t, n)
	common := append(append(os.Environ(), "ARBITER_DATA="+dir, "ARBITER_ENVOY_CONCURRENCY=1"), env...)
	f := &fleet{}
	for i, addr := range addrs {
		_, port, _ := net.SplitHostPort(addr)
		g := &gateway{dir: dir, addr: addr, base: "https://localhost:" + port}
		g.env = append(common[:len(common):len(common)], "ARBITER_LISTEN="+addr)
		suffix := ""
		if i > 0 {
			suffix = "-" + strconv.Itoa(i+1)
			g.env = append(g.env, "ARBITER_INSTANCE="+suffix[1:])
		}
		f.pairs = append(f.pairs, &pair{g, f.process(t, "extauthz", suffix, g), f.process(t, "envoy", suffix, g)})
	}
	f.gateway = f.pairs[0].gateway
	f.control = f.process(t, "control", "", f.gateway)
	for _, p := range f.processes() {
		p.start(t)
	}
	f.awaitReady(t)
	return f
}

// closedPorts are n different addresses that nobody listens on.
func closedPorts(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// process prepares one role; its log is shown when the test has failed.
func (f *fleet) process(t *testing.T, role, suffix string, g *gateway) *process {
	t.Helper()
	p := &process{name: role + suffix, role: role, env: g.env}
	var err error
	if p.log, err = os.OpenFile(filepath.Join(g.dir, p.name+".stderr"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
	if g.log == nil || role == "control" {
		g.log = p.log
	}
	t.Cleanup(func() {
		p.stop(t)
		if log, _ := os.ReadFile(p.log.Name()); t.Failed() && len(log) > 0 {
			t.Logf("log of %s:\n%s", p.name, tail(log, 4<<10))
		}
		p.log.Close()
	})
	return p
}

// processes are all of them.
func (f *fleet) processes() []*process {
	all := []*process{f.control}
	for _, p := range f.pairs {
		all = append(all, p.extauthz, p.envoy)
	}
	return all
}

// awaitReady waits until control knows every pair, and every pair decides.
func (f *fleet) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, fleetWithin, "all are connected", func() bool {
		for _, p := range f.processes() {
			if p.isGone() {
				t.Fatalf("%s has ended", p.name)
			}
		}
		s, err := f.status()
		return err == nil && len(s.Problems) == 0 && s.Envoy.Ready && s.Envoy.Connected == len(f.pairs) && s.connected() == len(f.pairs)
	})
	pem, err := os.ReadFile(filepath.Join(f.dir, "ca.pem"))
	if err != nil && !os.IsNotExist(err) { // none with a given certificate
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for i, p := range f.pairs {
		p.roots = roots
		eventually(t, fleetWithin, fmt.Sprintf("pair %d answers", i+1), func() bool {
			got, err := p.try(t, call{path: "/servers/00000000-0000-4000-8000-000000000000/rpc", body: rpc("1", "ping", "")})
			return err == nil && got.status == 401
		})
	}
}

// fleetStatus is what the API says of the fleet, as far as tests look.
type fleetStatus struct {
	Listeners []string `json:"listeners"`
	Envoy     struct {
		Connected int  `json:"connected"`
		Ready     bool `json:"ready"`
	} `json:"envoy"`
	Replicas []struct {
		Name       string    `json:"name"`
		Connected  bool      `json:"connected"`
		LeaseUntil time.Time `json:"lease_until"`
	} `json:"replicas"`
	Problems []string `json:"problems"`
}

// connected counts the replicas that hold a lease.
func (s fleetStatus) connected() (n int) {
	for _, r := range s.Replicas {
		if r.Connected && !r.LeaseUntil.IsZero() {
			n++
		}
	}
	return n
}

func (f *fleet) status() (out fleetStatus, err error) {
	resp, err := overSocket(filepath.Join(f.dir, "admin.sock")).Get("http://arbiter/api/v1/status")
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return out, fmt.Errorf("status %d", resp.StatusCode)
	}
	return out, json.NewDecoder(resp.Body).Decode(&out)
}

// start runs the role, for the first time or again.
func (p *process) start(t *testing.T) {
	t.Helper()
	cmd, ended := exec.Command(arbiter, p.role), make(chan struct{})
	cmd.Env, cmd.Stderr = p.env, p.log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", p.name, err)
	}
	p.Cmd, p.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
}

func (p *process) pid() int { return p.Process.Pid }

func (p *process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Errorf("signal %v to %s: %v", signal, p.name, err)
	}
}

// kill is kill -9; it returns when the process is gone.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
}

// wait returns when the process is gone.
func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		t.Errorf("%s has not ended within 20 s", p.name)
	}
}

// isGone reports whether the newest process has ended; before the first it has.
func (p *process) isGone() bool {
	if p.ended == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// stop ends the process, also a stopped one, as Ctrl-C does, and when that is
// not enough as kill -9 does.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if p.isGone() {
		return
	}
	_ = p.Process.Signal(syscall.SIGCONT)
	_ = p.Process.Signal(syscall.SIGINT)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		t.Errorf("%s does not end by SIGINT", p.name)
		_ = p.Process.Kill()
		p.wait(t)
	}
}
