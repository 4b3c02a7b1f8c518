//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	chaosLease = 5 * time.Second  // the shortest there is
	chaosRound = 12 * time.Second // of faults, until all are healed and all must work
)

// TestFaults lets bad things happen to three pairs and their control, drawn from
// a seed, while tenants make, use and end credentials. What control has answered
// holds all the time, and when the faults are healed everything works within two
// leases. FAULTTIME is how long it goes on, FAULTSEED which faults are drawn.
func TestFaults(t *testing.T) {
	const pairs, tenantsMost = 3, 4
	seed, length := chaosSeed(t), chaosTime(t, 25*time.Second)
	t.Logf("FAULTSEED=%d FAULTTIME=%v", seed, length)
	a := startApart(t, pairs, "ARBITER_LEASE="+chaosLease.String())
	n := newTenants(t, a.fleet, newPromises(t, 10*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range uint64(tenantsMost) {
		running.Go(func() { n.live(ctx, rand.New(rand.NewPCG(seed, i))) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	c := &chaos{apart: a, promises: n.promises}
	victims := c.victims(seed)
	for round := 1; n.now() < length && !t.Failed(); round++ {
		c.round(t, victims)
		t.Logf("round %d: works again after %v", round, n.works(t))
		n.check(t)
	}
	cancel()
	running.Wait()
	n.check(t)
	n.report(t, c.count)
	if t.Failed() {
		for _, line := range c.happened {
			t.Log(line)
		}
	}
}

func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("FAULTSEED")
	if text == "" {
		return uint64(time.Now().UnixNano()) % 1_000_000
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("FAULTSEED: %v", err)
	}
	return seed
}

// chaosTime is FAULTTIME, which only a run of faults sets.
func chaosTime(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("FAULTTIME")
	if text == "" {
		return usual
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("FAULTTIME: %v", err)
	}
	return length
}

// report tells what happened, and fails when it could have shown nothing.
func (n *tenants) report(t *testing.T, faults int) {
	t.Helper()
	for _, what := range []struct {
		name  string
		count int64
	}{
		{"faults", int64(faults)},
		{"tokens made", n.made.Load()},
		{"deleted", n.deletes.Load()},
		{"servers disabled or deleted", n.disables.Load() + n.servers.Load()},
		{"answers without some replica", n.missing.Load()},
		{"calls allowed", n.allowed.Load()},
		{"refused", n.refused.Load()},
		{"requests at the upstream", int64(n.arrived)},
		{"events", int64(n.events)},
		{"streams ended", n.cut.Load()},
	} {
		t.Logf("%6d %s", what.count, what.name)
		if what.count == 0 {
			t.Errorf("nothing is shown without %s", what.name)
		}
	}
	t.Logf("%6d calls failed, %d changes were not answered with success", n.faults.Load(), n.errors.Load())
}

// works waits until every pair accepts a new token, and a delete of it is
// answered by all: within two leases. It says how long that took.
func (n *tenants) works(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	soonest := func(what string, done func() bool) {
		t.Helper()
		eventually(t, 2*chaosLease-min(time.Since(began), 2*chaosLease-time.Millisecond), what, done)
	}
	var server, id, value string
	soonest("a server can be made", func() (ok bool) { server, ok = n.server(t.Context()); return ok })
	soonest("a token can be made", func() bool {
		status, made, err := n.fleet.ask("POST", "/servers/"+server+"/tokens", `{"name":"one"}`)
		if err != nil || status != 201 {
			return false
		}
		id, value = made["id"].(string), made["token"].(string)
		return true
	})
	for _, d := range n.doors {
		v := visit{d, mark{server: server, token: id, pair: d.name}, value}
		soonest("pair "+d.name+" accepts it", func() bool { return n.ping(t, v) == 200 })
	}
	took := time.Since(began)
	answer := n.fleet.mustAsk(t, "DELETE", "/servers/"+server+"/tokens/"+id, "", 200)["revocation"].(map[string]any)
	n.ended(id)
	if answer["replicas_confirmed"] != float64(len(n.doors)) {
		t.Errorf("with everything healed a delete says %v", answer)
	}
	for _, d := range n.doors {
		v := visit{d, mark{server: server, token: id, pair: d.name}, value} // the upstream judges what comes before
		eventually(t, 2*chaosLease, "pair "+d.name+" refuses it", func() bool { return n.ping(t, v) == 401 })
	}
	return took
}

// ping is the status that a call gets, 0 for none.
func (n *tenants) ping(t *testing.T, v visit) int {
	resp, err := n.send(t.Context(), v.kept, v, pingCall)
	if err != nil {
		return 0
	}
	finish(resp)
	return resp.StatusCode
}

// chaos does bad things.
type chaos struct {
	*apart
	promises *promises

	mu       sync.Mutex // guards the rest
	happened []string
	count    int
}

// victim is what one kind of fault after the other happens to.
type victim struct {
	name   string
	random *rand.Rand
	calm   time.Duration // the longest time without a fault
	faults []fault
}

// fault is something bad; what it returns ends it.
type fault struct {
	name string
	do   func(*testing.T, *rand.Rand) (undo func())
}

// round lets everything happen to everyone for a while, and heals it.
func (c *chaos) round(t *testing.T, victims []*victim) {
	ctx, cancel := context.WithTimeout(t.Context(), chaosRound)
	defer cancel()
	var running sync.WaitGroup
	for _, v := range victims {
		running.Go(func() {
			for {
				rest(ctx, time.Duration(v.random.Float64()*float64(v.calm)))
				if ctx.Err() != nil {
					return
				}
				c.happen(ctx, t, v)
			}
		})
	}
	running.Wait()
}

func (c *chaos) happen(ctx context.Context, t *testing.T, v *victim) {
	f := v.faults[v.random.IntN(len(v.faults))]
	length := v.length()
	began := c.promises.now()
	undo := f.do(t, v.random)
	rest(ctx, length)
	undo()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.happened = append(c.happened, fmt.Sprintf("%v to %v: %s %s", began, c.promises.now(), v.name, f.name))
}

// length is that of a fault: most are short, and some outlast a lease.
func (v *victim) length() time.Duration {
	if v.random.IntN(5) < 3 {
		return time.Duration(100+v.random.IntN(1400)) * time.Millisecond
	}
	return time.Duration(1500+v.random.IntN(6500)) * time.Millisecond
}

// victims are all there is. Each draws from a source of its own, so that a seed
// means the same faults however long each takes.
func (c *chaos) victims(seed uint64) (all []*victim) {
	add := func(name string, calm time.Duration, faults ...fault) {
		all = append(all, &victim{name, rand.New(rand.NewPCG(seed, 100+uint64(len(all)))), calm, faults})
	}
	add("control", 15*time.Second, stopped(c.control.pid), killed(c.control))
	for i, p := range c.pairs {
		add(fmt.Sprintf("extauthz %d", i+1), 16*time.Second, stopped(p.extauthz.pid), killed(p.extauthz))
		add(fmt.Sprintf("envoy %d", i+1), 16*time.Second, c.frozenEnvoy(i), killedEnvoy(p), killedRunner(p))
		add(fmt.Sprintf("link %d", i+1), 8*time.Second, linkFaults(c.relays[i])...)
	}
	return all
}

// stopped is SIGSTOP, and SIGCONT.
func stopped(pid func() int) fault {
	return fault{"stopped", func(*testing.T, *rand.Rand) func() {
		pid := pid()
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	}}
}

// killed is kill -9, and a new start.
func killed(p *process) fault {
	return fault{"killed", func(t *testing.T, _ *rand.Rand) func() {
		p.kill(t)
		return func() { p.start(t) }
	}}
}
