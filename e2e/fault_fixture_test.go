//go:build e2e

package e2e

import (
	"fmt"
	"os"
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

// roles is a fleet of one pair: three processes, called by their role.
type roles struct {
	*fleet
	running map[string]*process
}

func startRoles(t *testing.T, env ...string) *roles {
	t.Helper()
	f := startFleet(t, 1, env...)
	return &roles{f, map[string]*process{"control": f.control, "extauthz": f.pairs[0].extauthz, "envoy": f.pairs[0].envoy}}
}

// run starts one role again.
func (r *roles) run(t *testing.T, role string) {
	t.Helper()
	r.running[role].start(t)
}

// kill is kill -9 of one role.
func (r *roles) kill(t *testing.T, role string) {
	t.Helper()
	r.running[role].kill(t)
}

func (r *roles) signal(t *testing.T, role string, signal syscall.Signal) {
	t.Helper()
	r.running[role].signal(t, signal)
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
