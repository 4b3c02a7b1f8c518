// The race detector's own runtime ends (CHECK failed in tsan_rtl.cpp) when SQLite
// runs in a synctest bubble: `make unit` runs this test without it.
//go:build !race

package extauthz

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// machineRounds is how often a run takes rapid's number of steps.
const machineRounds = 2

// TestMachine drives a control and its replicas through random faults, and asks
// after every step for the one promise: from the answer of a delete on nobody
// accepts the token, and no stream of it lives.
//
// The hub, the followers with their goroutines and timers, Check, Guard, the
// resolver with its cache and the SQLite store are the real ones, in virtual
// time; only the sockets between them are not.
func TestMachine(t *testing.T) {
	db := newDatabase(t)
	rapid.Check(t, func(rt *rapid.T) {
		replicas := rapid.IntRange(1, machineReplicasMost).Draw(rt, "replicas")
		faults := rapid.SliceOfNDistinct(rapid.SampledFrom(machineFaults()), 0, 4, rapid.ID).Draw(rt, "faults")
		var failed any
		synctest.Test(t, func(*testing.T) { failed = runMachine(rt, db, replicas, faults) })
		// rapid waits for its panics in its own goroutine, and tells by their line
		// a failure from a run that it cannot make.
		if fmt.Sprintf("%T", failed) == "rapid.invalidData" {
			panic(failed)
		}
		if failed != nil {
			panic(failed)
		}
	})
}

// machineFaults are the actions of which a run has a few: what is rare alone is
// less rare in such company.
func machineFaults() []string {
	return []string{"Restart", "Control", "Pause", "Partition", "Heal", "Slow", "Duplicate", "Gap", "Clock", "Lag"}
}

// runMachine is one run; it returns what rapid panicked with.
func runMachine(rt *rapid.T, db database, replicas int, faults []string) (failed any) {
	m, err := newMachine(db, replicas)
	if err != nil {
		return err
	}
	defer func() {
		failed = recover()
		if err := m.close(); err != nil && failed == nil {
			failed = err
		}
	}()
	actions := rapid.StateMachineActions(m)
	actions["WaitAgain"] = m.Wait // time passes twice as often as anything happens
	for _, fault := range machineFaults() {
		if !slices.Contains(faults, fault) {
			delete(actions, fault)
		}
	}
	for range machineRounds {
		rt.Repeat(actions)
	}
	m.recovers(rt)
	return nil
}

// machine is the state: what was promised, and who could break it.
type machine struct {
	control  *machineControl
	replicas []*machineReplica
	started  int  // replicas ever
	lags     bool // control's reader
	tokens   []*machineToken
	work     sync.WaitGroup

	mu     sync.Mutex // guards the rest
	live   map[*machineStream]bool
	broken []string // promises
}

// machineToken is a token; machine.mu guards answered and asking.
type machineToken struct {
	name     string
	id       string
	call     wire.Message
	change   revocation.Change        // its delete; zero: it was not deleted
	answered bool                     // the delete was
	asking   map[*machineReplica]bool // a use is under way
}

// GoString is how rapid shows it.
func (t *machineToken) GoString() string { return t.name }

const machineReplicasMost = 3

func newMachine(db database, replicas int) (*machine, error) {
	control, err := newMachineControl(db)
	if err != nil {
		return nil, err
	}
	m := &machine{control: control, live: map[*machineStream]bool{}, replicas: make([]*machineReplica, replicas)}
	for i := range m.replicas {
		if err := m.startReplica(i); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Second) // they have a lease
	return m, nil
}

func (m *machine) close() error {
	for i := range m.replicas {
		m.endReplica(i, true)
	}
	m.control.kill()
	m.work.Wait()
	return m.control.store.Close()
}

func (m *machine) startReplica(i int) (err error) {
	m.started++
	m.replicas[i], err = newMachineReplica(fmt.Sprintf("r%d", m.started), m.control)
	return err
}

// endReplica ends a replica as a signal does that it hears, or one that it
// does not.
func (m *machine) endReplica(i int, kill bool) {
	r := m.replicas[i]
	if kill {
		r.line.part(true)
		m.mu.Lock()
		for s := range m.live {
			if s.replica == r {
				delete(m.live, s)
			}
		}
		m.mu.Unlock()
	}
	r.cancel()
	if err := <-r.ended; err != nil {
		m.violated("replica %s ended with %v", r.name, err)
	}
	r.line.part(true)
}

func (m *machine) violated(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = append(m.broken, fmt.Sprintf(format, args...))
}

// opened and closed say what lives, in the moment in which it does.
func (m *machine) opened(s *machineStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.replica.ctx.Err() != nil {
		return
	}
	if s.token.answered {
		m.broken = append(m.broken, fmt.Sprintf("replica %s opened a stream of %s", s.replica.name, s.token.name))
	}
	m.live[s] = true
}

func (m *machine) answered(tok *machineToken) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return tok.answered
}

func (m *machine) closed(s *machineStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, s)
}

// use is one request, whose answer comes after a while and streams. Whether it
// may be accepted is decided when it begins.
func (m *machine) use(r *machineReplica, tok *machineToken, after time.Duration) {
	refused := m.answered(tok)
	m.work.Go(func() {
		note, err := r.check(tok.call)
		m.mu.Lock()
		delete(tok.asking, r)
		m.mu.Unlock()
		if err != nil {
			return
		}
		if refused {
			m.violated("replica %s accepted %s", r.name, tok.name)
		}
		select {
		case <-time.After(after):
		case <-r.ctx.Done():
			return
		}
		s := &machineStream{replica: r, note: note, token: tok, machine: m, over: make(chan struct{})}
		_ = r.server.Process(s)
		m.closed(s)
	})
}

// await waits for a delete's answer, as the API does. A control that ends takes
// it along; whoever asked asks the next one.
func (m *machine) await(tok *machineToken) {
	hub, alive := m.control.serving()
	m.work.Go(func() {
		done, err := hub.Confirmed(alive, tok.change)
		if err != nil {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		tok.answered = true
		for s := range m.live {
			if s.token == tok {
				m.broken = append(m.broken, fmt.Sprintf("a stream of %s lives at replica %s, %d of %d confirmed", tok.name, s.replica.name, done.Confirmed, done.Replicas))
			}
		}
	})
}

// Check asks every replica for every token whose end was promised.
func (m *machine) Check(rt *rapid.T) {
	synctest.Wait()
	m.probe()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.broken) > 0 {
		rt.Fatalf("after the answer: %s", m.broken[0])
	}
}

// probe presents what has ended to every replica that is not asked yet.
func (m *machine) probe() {
	for _, tok := range m.tokens {
		for _, r := range m.replicas {
			m.mu.Lock()
			ask := tok.answered && !tok.asking[r]
			if ask {
				tok.asking[r] = true
			}
			m.mu.Unlock()
			if ask {
				m.use(r, tok, 0)
			}
		}
	}
}

// recovers demands that all is well again two leases after the last fault.
func (m *machine) recovers(rt *rapid.T) {
	if hub, _ := m.control.serving(); hub == nil {
		m.Control(rt)
	}
	m.control.lag(false)
	for _, r := range m.replicas {
		r.line.heal()
	}
	time.Sleep(2 * machineLease)
	m.Check(rt)
	for _, r := range m.replicas {
		if err := r.server.Ready(); err != nil {
			rt.Fatalf("replica %s: %v", r.name, err)
		}
		for _, tok := range m.tokens {
			_, err := r.check(tok.call)
			switch deleted := tok.change.Seq > 0; {
			case deleted && !m.answered(tok):
				rt.Fatalf("the delete of %s was not answered", tok.name)
			case deleted != (err != nil):
				rt.Fatalf("replica %s, %s, deleted %t: %v", r.name, tok.name, deleted, err)
			}
		}
	}
}
