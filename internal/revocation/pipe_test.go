package revocation

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// pipe is a pb.ControlClient whose stream ends at a hub, in memory and in
// virtual time. held keeps messages to the replica back.
type pipe struct {
	pb.ControlClient
	hub  *Hub
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
	s := &duplex{ctx: ctx, pipe: p, up: make(chan *pb.FromReplica, 64), down: make(chan *pb.ToReplica, 64)}
	go func() {
		defer p.cut()
		_ = p.hub.Serve(serverEnd{s})
	}()
	return clientEnd{s}, nil
}

type duplex struct {
	ctx  context.Context
	pipe *pipe
	up   chan *pb.FromReplica
	down chan *pb.ToReplica
}

type serverEnd struct{ *duplex }

func (s serverEnd) Send(m *pb.ToReplica) error {
	select {
	case s.down <- m:
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

type clientEnd struct{ *duplex }

func (s clientEnd) Send(m *pb.FromReplica) error {
	select {
	case s.up <- m:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s clientEnd) Recv() (*pb.ToReplica, error) {
	var m *pb.ToReplica
	select {
	case m = <-s.down:
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	for s.pipe.holds() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
	return m, nil
}

func (p *pipe) holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

func (s *duplex) Context() context.Context   { return s.ctx }
func (*duplex) SetHeader(metadata.MD) error  { return nil }
func (*duplex) SendHeader(metadata.MD) error { return nil }
func (*duplex) SetTrailer(metadata.MD)       {}
func (*duplex) Header() (metadata.MD, error) { return nil, nil }
func (*duplex) Trailer() metadata.MD         { return nil }
func (*duplex) CloseSend() error             { return nil }
func (*duplex) SendMsg(any) error            { return nil }
func (*duplex) RecvMsg(any) error            { return nil }

// world is one control and one replica, with their goroutines.
type world struct {
	log      *memoryLog
	roster   *memoryRoster
	hub      *Hub
	pipe     *pipe
	follower *Follower
	pushed   int64 // settings; guarded by mu
	due      int64
	saw      Position
	mu       sync.Mutex // guards pushed, due, saw and events
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

func (w *world) push(pushed, due int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pushed, w.due = pushed, due
}

func (w *world) newHub(listed map[string]time.Duration) *Hub {
	return NewHub(HubConfig{
		Log: w.log, Roster: w.roster, Listed: listed, Lease: testLease,
		Pushed: func() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.pushed },
		Due:    func() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.due },
		Grace:  testLease / 3,
	})
}

func (w *world) cut(keys ...Key) (ended []int64) {
	for _, k := range keys {
		if k.Kind == KindAccessToken && !w.follower.Known().Has(k.Hash()) {
			w.note("cut before applied: " + k.Key)
		}
		w.note("cut " + k.Key)
		ended = append(ended, 2)
	}
	return ended
}

func newWorld() *world {
	began := time.Now()
	w := &world{log: newMemoryLog(), roster: &memoryRoster{}}
	w.hub = w.newHub(nil)
	w.pipe = &pipe{hub: w.hub}
	w.follower = NewFollower(FollowerConfig{
		Client: w.pipe, Replica: "r1", Slog: slog.New(slog.DiscardHandler),
		Clock: func() Instant { return Instant{Boot: time.Since(began), Wall: time.Now()} },
		Cut:   w.cut, CutAll: func() { w.note("cut all") },
		Saw: func(at Position) { w.mu.Lock(); defer w.mu.Unlock(); w.saw = at },
	})
	return w
}

// inWorld runs a test in virtual time, with the replica's lease held.
func inWorld(t *testing.T, do func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.follower.Run(ctx) }()
		synctest.Wait()
		if !w.follower.Alive() {
			t.Fatal("no lease at the start")
		}
		do(t, w)
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, ErrOtherDatabase) {
			t.Errorf("run: %v", err)
		}
	})
}

// confirmed waits for a change, which has to be answered.
func (w *world) confirmed(t *testing.T, hub *Hub, change Change) Result {
	t.Helper()
	got, err := hub.Confirmed(t.Context(), change)
	if err != nil {
		t.Errorf("confirmed: %v", err)
	}
	return got
}
