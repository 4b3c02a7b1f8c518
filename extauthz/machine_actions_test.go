//go:build !race

package extauthz

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

func (m *machine) replica(rt *rapid.T) *machineReplica {
	return rapid.SampledFrom(m.replicas).Draw(rt, "replica")
}

// livingMost tokens are there at a time.
const livingMost = 2

// living are the tokens that were not deleted.
func (m *machine) living() (out []*machineToken) {
	for _, tok := range m.tokens {
		if tok.change.Seq == 0 {
			out = append(out, tok)
		}
	}
	return out
}

// Create makes a token, unless enough of them live.
func (m *machine) Create(rt *rapid.T) {
	if len(m.living()) == livingMost {
		return
	}
	value := token.New(token.Access, machineMAC).Reveal()
	row, err := m.control.store.CreateToken(context.Background(), store.AccessToken{
		Server: m.control.server, Digest: token.DigestOf(value),
	})
	if err != nil {
		rt.Fatal(err)
	}
	call, err := machineCall(m.control.server, value)
	if err != nil {
		rt.Fatal(err)
	}
	m.tokens = append(m.tokens, &machineToken{
		name: fmt.Sprintf("t%d", len(m.tokens)+1), id: row.ID, call: call, asking: map[*machineReplica]bool{},
	})
}

// Use presents every token that is not yet known to have ended to every replica,
// and has the answers stream.
func (m *machine) Use(rt *rapid.T) {
	after := rapid.SampledFrom([]time.Duration{0, time.Second, 4 * time.Second}).Draw(rt, "answer")
	for _, tok := range m.tokens {
		if m.answered(tok) {
			continue
		}
		for _, r := range m.replicas {
			m.use(r, tok, after)
		}
	}
}

// Delete ends a token. The answer comes when it comes.
func (m *machine) Delete(rt *rapid.T) {
	living := m.living()
	if hub, _ := m.control.serving(); hub == nil || len(living) == 0 {
		return
	}
	tok := rapid.SampledFrom(living).Draw(rt, "token")
	entry, err := m.control.store.DeleteToken(context.Background(), m.control.server, tok.id)
	if err != nil {
		rt.Fatal(err)
	}
	tok.change = revocation.Change{Seq: entry.Seq, What: entry.What()}
	m.await(tok)
}

// Restart ends a replica, killed or told to stop, and starts another.
func (m *machine) Restart(rt *rapid.T) {
	i := rapid.IntRange(0, len(m.replicas)-1).Draw(rt, "replica")
	m.endReplica(i, rapid.Bool().Draw(rt, "killed"))
	if err := m.startReplica(i); err != nil {
		rt.Fatal(err)
	}
}

// Control kills control, and starts it again over its database, at once or when
// it is its turn again.
func (m *machine) Control(rt *rapid.T) {
	if hub, _ := m.control.serving(); hub != nil {
		m.control.kill()
		if rapid.Bool().Draw(rt, "stays away") {
			return
		}
	}
	if err := m.control.start(); err != nil {
		rt.Fatal(err)
	}
	for _, tok := range m.tokens {
		if tok.change.Seq > 0 && !m.answered(tok) {
			m.await(tok)
		}
	}
}

// Pause holds the messages of a replica in one direction or both, or lets them
// go on in their order.
func (m *machine) Pause(rt *rapid.T) {
	l := m.replica(rt).line
	held := rapid.SampledFrom([][2]bool{{true, true}, {up: true}, {down: true}}).Draw(rt, "up and down")
	l.set(func() {
		if l.held != [2]bool{} {
			held = [2]bool{}
		}
		l.held = held
	})
}

// Partition cuts a replica off. Control may believe that it is there.
func (m *machine) Partition(rt *rapid.T) {
	m.replica(rt).line.part(rapid.Bool().Draw(rt, "control notices"))
}

// Heal makes a replica's line as good as new.
func (m *machine) Heal(rt *rapid.T) { m.replica(rt).line.heal() }

// Slow gives the messages of a replica a delay in one direction, which may be
// longer than a lease, until it is felt.
func (m *machine) Slow(rt *rapid.T) {
	l := m.replica(rt).line
	delay := rapid.SampledFrom([]time.Duration{8 * time.Second, time.Second, 100 * time.Millisecond}).Draw(rt, "delay")
	direction := rapid.SampledFrom([]int{down, up}).Draw(rt, "direction")
	l.set(func() { l.delay[direction] = delay })
	m.pass(delay + time.Second)
}

// Duplicate has the next messages of a replica come twice.
func (m *machine) Duplicate(rt *rapid.T) {
	l := m.replica(rt).line
	direction := rapid.SampledFrom([]int{up, down}).Draw(rt, "direction")
	l.set(func() { l.double[direction]++ })
}

// Gap has entries leave the log too early, and strikes off who is gone.
func (m *machine) Gap(rt *rapid.T) {
	hub, alive := m.control.serving()
	if hub == nil {
		return
	}
	if err := m.control.gap(); err != nil {
		rt.Fatal(err)
	}
	if err := hub.Sweep(alive); err != nil {
		rt.Fatal(err)
	}
}

// Wait lets time pass.
func (m *machine) Wait(rt *rapid.T) {
	ms := rapid.SampledFrom([]int{20, 500, 1000, 2000, 3000, 5000, 9000, 9000}).Draw(rt, "ms")
	m.pass(time.Duration(ms) * time.Millisecond)
}

// pass lets time pass, and asks all the while.
func (m *machine) pass(left time.Duration) {
	const step = 500 * time.Millisecond
	for ; left > 0; left -= step {
		time.Sleep(min(left, step))
		m.probe()
	}
}

// Clock moves a replica's clocks: the time of day was set, or its machine slept
// for longer than entries and answers are kept.
func (m *machine) Clock(rt *rapid.T) {
	r := m.replica(rt)
	if rapid.Bool().Draw(rt, "slept") {
		r.step(20*time.Minute, 20*time.Minute)
		return
	}
	by := rapid.SampledFrom([]time.Duration{300 * time.Millisecond, 2 * time.Second, -time.Hour}).Draw(rt, "by")
	r.step(0, by)
}

// Lag has lookups answered from an earlier state, or from the newest again.
func (m *machine) Lag(*rapid.T) {
	m.lags = !m.lags
	m.control.lag(m.lags)
}
