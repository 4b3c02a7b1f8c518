//go:build e2e

package e2e

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// envoyOf is the Envoy that a process has started, 0 without one.
func envoyOf(parent int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			pid, err := strconv.Atoi(child)
			if name, _ := os.ReadFile("/proc/" + child + "/comm"); err == nil && strings.TrimSpace(string(name)) == "envoy" {
				return pid
			}
		}
	}
	return 0
}

// gone reports whether a process has ended; one that nobody has waited for yet
// has.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// roles is a gateway of three processes in one data directory.
type roles struct {
	*gateway
	running map[string]*exec.Cmd
}

func startRoles(t *testing.T, env ...string) *roles {
	t.Helper()
	addr := closedPort(t)
	_, port, _ := net.SplitHostPort(addr)
	dir := t.TempDir()
	r := &roles{&gateway{dir: dir, addr: addr, base: "https://localhost:" + port}, map[string]*exec.Cmd{}}
	r.env = append(append(os.Environ(), "ARBITER_DATA="+dir, "ARBITER_LISTEN="+addr), env...)
	var err error
	if r.log, err = os.OpenFile(filepath.Join(dir, "stderr.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for role := range r.running {
			r.signal(t, role, syscall.SIGCONT)
			r.kill(t, role)
		}
		if t.Failed() {
			log, _ := os.ReadFile(r.log.Name())
			t.Logf("log of the gateway:\n%s", tail(log, 8<<10))
		}
	})
	for _, role := range []string{"control", "extauthz", "envoy"} {
		r.run(t, role)
	}
	eventually(t, 20*time.Second, "the roles find each other", func() bool {
		resp, err := overSocket(filepath.Join(dir, "admin.sock")).Get("http://arbiter/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	r.roots = x509.NewCertPool()
	r.roots.AppendCertsFromPEM(pem)
	return r
}

// run starts one role.
func (r *roles) run(t *testing.T, role string) {
	t.Helper()
	cmd := exec.Command(arbiter, role)
	cmd.Env, cmd.Stderr = r.env, r.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.running[role] = cmd
}

// kill is kill -9 of one role.
func (r *roles) kill(t *testing.T, role string) {
	t.Helper()
	r.signal(t, role, syscall.SIGKILL)
	_ = r.running[role].Wait()
	delete(r.running, role)
}

func (r *roles) signal(t *testing.T, role string, signal syscall.Signal) {
	t.Helper()
	if err := r.running[role].Process.Signal(signal); err != nil {
		t.Errorf("signal %v to %s: %v", signal, role, err)
	}
}

// outcome is what one request came to.
type outcome struct {
	status, code int // 0: no answer
	at           time.Time
}

// load asks again and again, a few at a time, until stop; it keeps what came.
type load struct {
	mu   sync.Mutex // guards seen
	seen []outcome
	end  chan struct{}
	done sync.WaitGroup
}

func (g *gateway) load(t *testing.T, c call) *load {
	l := &load{end: make(chan struct{})}
	for range 2 {
		l.done.Go(func() {
			for {
				select {
				case <-l.end:
					return
				case <-time.After(10 * time.Millisecond):
				}
				got, _ := g.try(t, c)
				l.mu.Lock()
				l.seen = append(l.seen, outcome{got.status, got.code(), time.Now()})
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (l *load) stop() []outcome {
	close(l.end)
	l.done.Wait()
	return l.seen
}

// newest is the status of the last answer.
func (l *load) newest() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.seen) == 0 {
		return 0
	}
	return l.seen[len(l.seen)-1].status
}

// only fails for an outcome that is not listed, and wants each listed one.
func only(t *testing.T, what string, seen []outcome, allowed ...[2]int) {
	t.Helper()
	count := map[[2]int]int{}
	for _, o := range seen {
		count[[2]int{o.status, o.code}]++
	}
	for _, want := range allowed {
		if count[want] == 0 {
			t.Errorf("%s: no answer was %v", what, want)
		}
		delete(count, want)
	}
	if len(count) > 0 {
		t.Errorf("%s: answers (status, code) that must not be: %v", what, count)
	}
}
