package revocation_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

const lease = 10 * time.Second

// memoryLog is a revocation.Log that a test appends to.
type memoryLog struct {
	mu      sync.Mutex // guards the rest
	at      revocation.Position
	oldest  int64
	entries []revocation.Entry
	broken  error
}

func (l *memoryLog) append(key string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at.Seq++
	l.entries = append(l.entries, revocation.Entry{
		Seq: l.at.Seq, Kind: revocation.KindAccessToken, Key: key, Until: time.Now().Add(time.Hour),
	})
	return l.at.Seq
}

func (l *memoryLog) set(edit func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit()
}

func (l *memoryLog) Position(context.Context) (revocation.Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.broken
}

func (l *memoryLog) OldestRevocation(context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.oldest, l.broken
}

func (l *memoryLog) RevocationsSince(_ context.Context, seq int64, limit int) ([]revocation.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []revocation.Entry
	for _, e := range l.entries {
		if e.Seq > seq && e.Seq > l.oldest && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, l.broken
}

// pipe is a pb.ControlClient whose stream ends at a hub, in memory and in
// virtual time. held keeps messages to the replica back.
type pipe struct {
	pb.ControlClient
	hub  *revocation.Hub
	mu   sync.Mutex // guards the rest
	cut  context.CancelFunc
	held bool
	down bool
}

func (p *pipe) set(edit func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edit()
}

func (p *pipe) Revocations(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.FromReplica, pb.ToReplica], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, errors.New("no connection")
	}
	ctx, p.cut = context.WithCancel(ctx)
	s := &stream{ctx: ctx, pipe: p, up: make(chan *pb.FromReplica, 64), toReplica: make(chan *pb.ToReplica, 64)}
	go func() {
		defer p.cut()
		_ = p.hub.Serve(serverEnd{s})
	}()
	return clientEnd{s}, nil
}

type stream struct {
	ctx       context.Context
	pipe      *pipe
	up        chan *pb.FromReplica
	toReplica chan *pb.ToReplica
}

type serverEnd struct{ *stream }

func (s serverEnd) Send(m *pb.ToReplica) error {
	select {
	case s.toReplica <- m:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s serverEnd) Recv() (*pb.FromReplica, error) {
	select {
	case m := <-s.up:
		return m, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

type clientEnd struct{ *stream }

func (s clientEnd) Send(m *pb.FromReplica) error {
	select {
	case s.up <- m:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s clientEnd) Recv() (*pb.ToReplica, error) {
	for {
		select {
		case m := <-s.toReplica:
			for {
				s.pipe.mu.Lock()
				held := s.pipe.held
				s.pipe.mu.Unlock()
				if !held {
					return m, nil
				}
				select {
				case <-time.After(10 * time.Millisecond):
				case <-s.ctx.Done():
					return nil, s.ctx.Err()
				}
			}
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
}

func (s *stream) Context() context.Context   { return s.ctx }
func (*stream) SetHeader(metadata.MD) error  { return nil }
func (*stream) SendHeader(metadata.MD) error { return nil }
func (*stream) SetTrailer(metadata.MD)       {}
func (*stream) Header() (metadata.MD, error) { return nil, nil }
func (*stream) Trailer() metadata.MD         { return nil }
func (*stream) CloseSend() error             { return nil }
func (*stream) SendMsg(any) error            { return nil }
func (*stream) RecvMsg(any) error            { return nil }

// world is one control and one replica.
type world struct {
	log      *memoryLog
	hub      *revocation.Hub
	pipe     *pipe
	follower *revocation.Follower
	mu       sync.Mutex // guards events
	events   []string
}

func (w *world) note(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
}

func (w *world) noted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// inWorld runs a test in virtual time, with the replica's lease held.
func inWorld(t *testing.T, do func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		slogger := slog.New(slog.DiscardHandler)
		w := &world{log: &memoryLog{at: revocation.Position{Database: "a", Epoch: 1}}}
		w.hub = revocation.NewHub(revocation.HubConfig{Log: w.log, Lease: lease, Slog: slogger})
		w.pipe = &pipe{hub: w.hub}
		w.follower = revocation.NewFollower(revocation.FollowerConfig{
			Client: w.pipe, Replica: "r1", Slog: slogger,
			Cut: func(keys ...revocation.Key) (ended []int64) {
				for _, k := range keys {
					if !w.follower.Set().Has(k) {
						w.note("cut before applied: " + k.Key)
					}
					w.note("cut " + k.Key)
					ended = append(ended, 2)
				}
				return ended
			},
			CutAll: func() { w.note("cut all") },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = w.follower.Run(ctx)
		}()
		synctest.Wait()
		if !w.follower.Alive() {
			t.Fatal("no lease at the start")
		}
		do(t, w)
		cancel()
		<-ended
	})
}

func key(text string) revocation.Key {
	return revocation.Key{Kind: revocation.KindAccessToken, Key: text}
}

func TestRevokedIsAppliedCutAndConfirmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := w.log.append("one"), w.log.append("two")
		got := w.hub.Confirmed(t.Context(), first)
		if got.Replicas != 1 || got.Confirmed != 1 || got.StreamsEnded != 2 || len(got.Missing) != 0 {
			t.Errorf("first: %+v", got)
		}
		if got := w.hub.Confirmed(t.Context(), second); got.Confirmed != 1 || got.StreamsEnded != 2 {
			t.Errorf("second: %+v", got)
		}
		if !w.follower.Set().Has(key("one")) || !w.follower.Set().Has(key("two")) || w.follower.Set().Has(key("three")) {
			t.Error("the set is not what was revoked")
		}
		if want := []string{"cut one", "cut two"}; !slices.Equal(w.noted(), want) {
			t.Errorf("events %v, want %v", w.noted(), want)
		}
	})
}

func TestUnheardReplicaIsWaitedForUntilItsLeaseIsOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.held = true }) // it pings, and hears nothing
		start := time.Now()
		seq := w.log.append("one")
		got := w.hub.Confirmed(t.Context(), seq)
		if got.Confirmed != 0 || !slices.Equal(got.Missing, []string{"r1"}) {
			t.Errorf("result %+v", got)
		}
		if w.follower.Alive() {
			t.Error("control answered while the replica could still accept")
		}
		if waited := time.Since(start); waited > lease+2*time.Second {
			t.Errorf("waited %v, more than the lease", waited)
		}
		if !slices.Contains(w.noted(), "cut all") {
			t.Errorf("events %v: control answered before the streams were cut", w.noted())
		}
		w.pipe.set(func() { w.pipe.held = false })
		time.Sleep(5 * time.Second)
		if !w.follower.Alive() || !w.follower.Set().Has(key("one")) {
			t.Error("heard again, the replica does not hold the lease and the entry")
		}
	})
}

func TestLeaseIsNotRenewedByLateAnswers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.held = true })
		time.Sleep(lease - 2*time.Second) // answers to eight pings wait
		w.pipe.set(func() { w.pipe.held = false; w.pipe.down = true })
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		w.pipe.set(func() { w.pipe.cut() })
		// The newest ping was sent at most a second before, so its answer
		// carries the lease to one lease after that, and no further.
		time.Sleep(lease)
		if w.follower.Alive() {
			t.Error("the lease counts from the arrival of an answer")
		}
	})
}

func TestDisconnectedReplicaKeepsItsLeaseAndNoMore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.down = true; w.pipe.cut() })
		synctest.Wait()
		if !w.follower.Alive() {
			t.Error("a short break ends the lease")
		}
		seq := w.log.append("one")
		if got := w.hub.Confirmed(t.Context(), seq); got.Replicas != 1 || len(got.Missing) != 1 {
			t.Errorf("result %+v: a replica that may still decide is not waited for", got)
		}
		if w.follower.Alive() {
			t.Error("control answered while the replica could still accept")
		}
		if got := w.hub.Replicas(); len(got) != 0 {
			t.Errorf("replicas %+v: the lease is over and nobody is connected", got)
		}
	})
}

// TestLeaseOfAnEarlierHubIsWaitedFor: the replica has not come back to the new
// hub yet, and may still accept what is deleted there.
func TestLeaseOfAnEarlierHubIsWaitedFor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pipe.set(func() { w.pipe.down = true; w.pipe.cut() })
		hub := revocation.NewHub(revocation.HubConfig{Log: w.log, Lease: lease, Slog: slog.New(slog.DiscardHandler), Outlived: lease})
		start := time.Now()
		if hub.Complete() {
			t.Error("a new hub knows every replica")
		}
		hub.Confirmed(t.Context(), w.log.append("one"))
		if w.follower.Alive() || !hub.Complete() {
			t.Error("control answered while a replica that it does not know could still accept")
		}
		if waited := time.Since(start); waited > lease {
			t.Errorf("waited %v, more than the lease", waited)
		}
		if hub.Confirmed(t.Context(), w.log.append("two")).Took > 0 {
			t.Error("waited again, after every earlier lease is over")
		}
	})
}

func TestGapBringsTheFullSet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.log.append("old")
		w.hub.Wake()
		synctest.Wait()
		w.pipe.set(func() { w.pipe.down = true; w.pipe.cut() })
		w.log.append("missed")
		last := w.log.append("newest")
		w.log.set(func() { w.log.oldest = 2 }) // "old" and "missed" have left
		w.pipe.set(func() { w.pipe.down = false })
		if got := w.hub.Confirmed(t.Context(), last); got.Confirmed != 1 {
			t.Errorf("result %+v", got)
		}
		set := w.follower.Set()
		if set.Has(key("old")) || set.Has(key("missed")) || !set.Has(key("newest")) || set.Len() != 1 {
			t.Errorf("the set has %d entries, want exactly the kept one", set.Len())
		}
	})
}

func TestOtherDatabaseBringsTheFullSet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.hub.Confirmed(t.Context(), w.log.append("of the first"))
		w.log.set(func() {
			w.log.at = revocation.Position{Database: "b", Epoch: 1, Seq: 0}
			w.log.entries = nil
		})
		w.hub.Confirmed(t.Context(), w.log.append("of the second"))
		time.Sleep(3 * time.Second)
		set := w.follower.Set()
		if set.Has(key("of the first")) || !set.Has(key("of the second")) || !w.follower.Alive() {
			t.Errorf("the set has %d entries, want those of the second database", set.Len())
		}
	})
}

func TestControlThatCannotReadRenewsNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.log.set(func() { w.log.broken = errors.New("disk gone") })
		time.Sleep(lease + time.Second)
		if w.follower.Alive() {
			t.Error("a lease was renewed by a control that cannot read its log")
		}
		w.log.set(func() { w.log.broken = nil })
		time.Sleep(5 * time.Second)
		if !w.follower.Alive() {
			t.Error("no lease after control can read again")
		}
	})
}

// Rights that settings take away end with the lease of who does not take them.
func TestReplicaBehindTheSettingsLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slogger := slog.New(slog.DiscardHandler)
		var due, runs atomic.Int64
		log := &memoryLog{at: revocation.Position{Database: "a", Epoch: 1}}
		hub := revocation.NewHub(revocation.HubConfig{Log: log, Lease: lease, Slog: slogger, Due: due.Load})
		follower := revocation.NewFollower(revocation.FollowerConfig{
			Client: &pipe{hub: hub}, Replica: "r1", Slog: slogger, Runs: runs.Load,
			Cut: func(keys ...revocation.Key) []int64 { return make([]int64, len(keys)) }, CutAll: func() {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = follower.Run(ctx)
		}()
		time.Sleep(2 * lease)
		if !follower.Alive() {
			t.Error("no lease although nothing is due")
		}
		due.Store(7)
		time.Sleep(lease + time.Second)
		if follower.Alive() {
			t.Error("the lease goes on with settings that are too old")
		}
		runs.Store(7)
		time.Sleep(2 * time.Second)
		if !follower.Alive() {
			t.Error("no lease with the settings that are due")
		}
		cancel()
		<-ended
	})
}

func TestFirstMessageMustBeHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := revocation.NewHub(revocation.HubConfig{Log: &memoryLog{}, Lease: lease})
		ctx, cancel := context.WithCancel(t.Context())
		s := &stream{ctx: ctx, up: make(chan *pb.FromReplica, 1), toReplica: make(chan *pb.ToReplica, 8)}
		s.up <- &pb.FromReplica{Kind: &pb.FromReplica_Ping{Ping: &pb.Ping{Number: 1}}}
		if err := hub.Serve(serverEnd{s}); err == nil {
			t.Error("a stream began without a hello")
		}
		cancel()
	})
}

// The two maps of a Set answer as one map would.
func TestSetIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		set := revocation.Full(nil, 0)
		model := map[string]bool{}
		for seq := range int64(rapid.IntRange(0, 900).Draw(t, "entries")) {
			name := strconv.Itoa(rapid.IntRange(0, 600).Draw(t, "key"))
			before := set
			set = set.With([]revocation.Entry{{Seq: seq, Kind: revocation.KindAccessToken, Key: name, Until: now.Add(time.Hour)}}, seq, now)
			if !model[name] && before.Has(key(name)) {
				t.Fatal("an older set changed")
			}
			model[name] = true
		}
		for n := range 600 {
			if name := strconv.Itoa(n); set.Has(key(name)) != model[name] {
				t.Fatalf("%s: %v, want %v", name, set.Has(key(name)), model[name])
			}
		}
	})
}

func TestSetForgetsWhatHasPassed(t *testing.T) {
	now := time.Now()
	set := revocation.Full([]revocation.Entry{{Seq: 1, Kind: revocation.KindAccessToken, Key: "old", Until: now.Add(time.Minute)}}, 1)
	later := now.Add(2 * time.Minute)
	for n := range int64(300) {
		set = set.With([]revocation.Entry{{Seq: n, Kind: revocation.KindAccessToken, Key: "n" + strconv.FormatInt(n, 10), Until: later.Add(time.Hour)}}, n, later)
	}
	if set.Has(key("old")) {
		t.Error("an entry stays for ever")
	}
	if set.Seq() != 299 || set.Len() != 300 {
		t.Errorf("seq %d, %d entries", set.Seq(), set.Len())
	}
}
