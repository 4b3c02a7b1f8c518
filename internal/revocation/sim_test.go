package revocation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSimulation runs one control and up to four replicas, with the real code
// of the protocol, in a world that goes wrong in every way that Arbiter knows
// of, thousands of times. A seed that breaks an invariant is printed with what
// happened before; -seed=N runs it alone.

var (
	oneSeed   = flag.Uint64("seed", 0, "run this one simulation, and print all that happens in it")
	firstSeed = flag.Uint64("from", 1, "the first seed of TestSimulation")
	seeds     = flag.Int("seeds", 3000, "how many simulations TestSimulation runs")
)

// sim is one simulated world.
type sim struct {
	now     time.Duration
	queue   queue
	order   int64
	steps   int
	chance  *rand.Rand
	pool    *pool
	current *worker
	waiters []*waiter

	tracing bool
	trace   []string
	fault   string

	lease   time.Duration
	enabled int           // faults
	unrest  time.Duration // most between two faults
	pace    time.Duration // most between two acts
	stalls  int           // of 200 reads and writes of control's disk
	healed  bool
	well    time.Duration // when all must be well again
	quiet   bool          // no admin does anything any more

	machine  *machine // control's
	db       *database
	control  *control
	controls int
	pending  int // acts that are not answered

	copies    []*database
	epoch     int64
	behind    bool          // an older copy was put back, and not accepted
	forgetful bool          // and control serves it
	ambush    func()        // puts it back in the middle of control's next reading
	accepting time.Duration // when a copy was accepted last

	nodes    []*node
	replicas map[string]*authz
	tokens   []*token
	servers  []*server

	accepts, opened, answers, missing int
}

func newSim(seed uint64, workers *pool, tracing bool) *sim {
	s := &sim{chance: newChance(seed), pool: workers, tracing: tracing, epoch: 1, replicas: map[string]*authz{}}
	s.lease = []time.Duration{5 * time.Second, 5 * time.Second, 9 * time.Second, 15 * time.Second}[s.pick(4)]
	s.enabled = s.pick(1 << faults)
	if s.oneIn(2) {
		s.enabled &= s.pick(1 << faults)
	}
	s.unrest, s.pace = s.between(time.Second, 8*time.Second), s.between(200*time.Millisecond, 3*time.Second)
	s.stalls = []int{0, 1, 1, 8}[s.pick(4)]
	s.machine = s.newMachine("control")
	s.db = &database{at: Position{Database: "a", Epoch: 1}, revision: 1, roster: map[string]time.Duration{}}
	for i := range 4 {
		sv := &server{id: i, what: Key{KindServer, fmt.Sprint("s", i)}, ended: never}
		sv.hash = sv.what.Hash()
		s.servers = append(s.servers, sv)
		s.db.deleted, s.db.disabled = append(s.db.deleted, false), append(s.db.disabled, false)
	}
	for range 6 {
		s.createToken()
	}
	s.startControl()
	for i := range 1 + s.pick(4) {
		n := &node{s: s, m: s.newMachine(fmt.Sprint("node ", i)), number: i}
		n.m.envoy = s.newProc(n.m, "envoy")
		s.nodes = append(s.nodes, n)
		n.start()
	}
	for _, begin := range []func(){s.work, s.clients, s.trouble, s.backup, s.lookAround} {
		s.event(nil, s.upTo(s.pace), begin)
	}
	return s
}

func (s *sim) newMachine(name string) *machine {
	return &machine{
		s: s, name: name, boot: s.upTo(time.Hour), ppm: int64(s.pick(401) - 200), sets: s.oneIn(2),
	}
}

// simulate runs one world to its end, or to its first fault.
func simulate(seed uint64, workers *pool, tracing bool) *sim {
	s := newSim(seed, workers, tracing)
	ill := s.between(15*time.Second, 60*time.Second)
	if s.oneIn(4) {
		ill *= 2
	}
	s.event(nil, ill, s.heal)
	s.well = never - time.Minute
	for s.now < s.well+4*time.Second && s.fault == "" {
		s.step()
	}
	if s.pending > 0 {
		s.fail("%d deletes are not answered long after every fault healed", s.pending)
	}
	s.endAll()
	return s
}

// askAll demands that everything is well.
func (s *sim) askAll() {
	for _, n := range s.nodes {
		for _, t := range s.valid() {
			s.ask(n, t, true)
		}
	}
}

// endAll ends every process, and with it every task.
func (s *sim) endAll() {
	for _, n := range s.nodes {
		for len(n.m.procs) > 0 {
			n.m.procs[0].kill()
		}
	}
	for len(s.machine.procs) > 0 {
		s.machine.procs[0].kill()
	}
}

func TestSimulation(t *testing.T) {
	if *oneSeed > 0 {
		s := simulate(*oneSeed, &pool{}, true)
		t.Log("\n" + strings.Join(s.trace, "\n"))
		if s.fault != "" {
			t.Errorf("invariant violated by seed %d: %s", *oneSeed, s.fault)
		}
		return
	}
	runs := *seeds
	if testing.Short() || raceEnabled {
		runs /= 10
	}
	var next, failed atomic.Uint64
	var accepts, opened, answers, missing, steps atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			workers := &pool{}
			for n := next.Add(1); n <= uint64(runs) && failed.Load() == 0; n = next.Add(1) {
				s := simulate(*firstSeed+n-1, workers, false)
				if s.fault != "" {
					failed.CompareAndSwap(0, *firstSeed+n-1)
				}
				accepts.Add(int64(s.accepts))
				opened.Add(int64(s.opened))
				answers.Add(int64(s.answers))
				missing.Add(int64(s.missing))
				steps.Add(int64(s.steps))
			}
		})
	}
	group.Wait()
	if seed := failed.Load(); seed > 0 {
		s := simulate(seed, &pool{}, true)
		t.Fatalf("invariant violated by seed %d: %s\n%s", seed, s.fault, strings.Join(s.trace[max(0, len(s.trace)-60):], "\n"))
	}
	took := time.Since(begun)
	t.Logf("%d seeds in %v: %d requests accepted, %d streams opened, %d deletes answered, %d replicas given up, %d steps",
		runs, took.Round(time.Millisecond), accepts.Load(), opened.Load(), answers.Load(), missing.Load(), steps.Load())
	for name, count := range map[string]int64{"accepted": accepts.Load(), "opened": opened.Load(), "answered": answers.Load(), "given up": missing.Load()} {
		if count < int64(runs) {
			t.Errorf("only %d %s in %d simulations: they prove little", count, name, runs)
		}
	}
}
