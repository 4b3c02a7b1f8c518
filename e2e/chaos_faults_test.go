//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// frozenEnvoy is SIGSTOP of a pair's Envoy, and SIGCONT.
func (c *chaos) frozenEnvoy(i int) fault {
	return fault{"stopped", func(*testing.T, *rand.Rand) func() {
		pid := c.pairs[i].envoyPid()
		if pid == 0 {
			return func() {}
		}
		from := c.promises.now()
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		return func() {
			c.promises.thawed(fmt.Sprint(i+1), from)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}}
}

// killedEnvoy is kill -9 of an Envoy, which its role starts again by itself.
func killedEnvoy(p *pair) fault {
	return fault{"killed", func(*testing.T, *rand.Rand) func() {
		if pid := p.envoyPid(); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return func() {}
	}}
}

// killedRunner is kill -9 of an Envoy's role, with which its Envoy ends.
func killedRunner(p *pair) fault {
	return fault{"killed with its role", func(t *testing.T, _ *rand.Rand) func() {
		p.killEnvoy(t)
		return func() { p.envoy.start(t) }
	}}
}

// linkFaults are what can happen between a pair and control. Bytes that are held
// and then drip arrive one message after the other, long after they were sent.
func linkFaults(r *testfleet.Relay) []fault {
	held := func(name string, up, down bool, after func(*rand.Rand)) fault {
		return fault{name, func(_ *testing.T, random *rand.Rand) func() {
			r.Hold(up, down)
			return func() {
				after(random)
				r.Heal()
			}
		}}
	}
	nothing := func(*rand.Rand) {}
	drip := func(random *rand.Rand) {
		r.Drip(16+random.IntN(100), 50*time.Millisecond)
		time.Sleep(2 * time.Second) // the fault itself, not a wait for anything
	}
	lost := func(*rand.Rand) { r.Cut() }
	return []fault{
		held("held towards control", true, false, nothing),
		held("held from control", false, true, nothing),
		held("held both ways", true, true, nothing),
		held("held from control, then dripping", false, true, drip),
		held("held both ways, then dripping", true, true, drip),
		held("held both ways, then lost", true, true, lost),
		held("held towards control, then lost", true, false, lost),
		{"refused", func(*testing.T, *rand.Rand) func() {
			r.Refuse()
			return r.Heal
		}},
		{"cut", func(*testing.T, *rand.Rand) func() {
			r.Cut()
			return func() {}
		}},
		{"dripping", func(_ *testing.T, random *rand.Rand) func() {
			r.Drip(64+random.IntN(1000), time.Duration(random.IntN(100))*time.Millisecond)
			return r.Heal
		}},
	}
}
