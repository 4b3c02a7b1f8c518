//go:build !race

package extauthz

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// line is a replica's connection to control, in memory and in virtual time: its
// messages can be held, slowed down, doubled and lost. They keep their order.
type line struct {
	control *machineControl

	mu         sync.Mutex // guards the rest
	changed    chan struct{}
	held       [2]bool // messages wait: up, down
	down       bool
	told       bool                 // control learns at once that it is down
	delay      [2]time.Duration     // of each message: up, down
	double     [2]int               // messages that come twice: up, down
	unanswered []context.CancelFunc // streams that control still believes in
}

const (
	up   = 0
	down = 1
)

func newLine(control *machineControl) *line {
	return &line{control: control, changed: make(chan struct{})}
}

// set changes how the line behaves, for what is on its way too.
func (l *line) set(edit func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit()
	close(l.changed)
	l.changed = make(chan struct{})
}

// part cuts the line. Control is told, or believes that the replica is there
// until the line is good again.
func (l *line) part(told bool) { l.set(func() { l.down, l.told = true, told }) }

// heal makes the line as good as new.
func (l *line) heal() {
	l.set(func() {
		l.down, l.held, l.delay, l.double = false, [2]bool{}, [2]time.Duration{}, [2]int{}
		for _, end := range l.unanswered {
			end()
		}
		l.unanswered = nil
	})
}

var errLineDown = status.Error(codes.Unavailable, "the line is down")

// pass takes a message to the other end: when it is due, and nothing holds it.
func (l *line) pass(ctx context.Context, direction int, sent time.Time) error {
	for {
		l.mu.Lock()
		isDown, held, wait, changed := l.down, l.held[direction], l.delay[direction]-time.Since(sent), l.changed
		l.mu.Unlock()
		var due <-chan time.Time
		switch {
		case isDown:
			return errLineDown
		case !held && wait <= 0:
			return nil
		case !held:
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// doubled reports whether the next message in a direction comes twice.
func (l *line) doubled(direction int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	twice := l.double[direction] > 0
	if twice {
		l.double[direction]--
	}
	return twice
}

// Invoke implements grpc.ClientConnInterface.
func (l *line) Invoke(ctx context.Context, method string, in, out any, _ ...grpc.CallOption) error {
	if method != pb.Control_Resolve_FullMethodName {
		return nil // records
	}
	if err := l.pass(ctx, up, time.Now()); err != nil {
		return err
	}
	got, err := l.control.resolve(ctx, in.(*pb.ResolveRequest))
	if err := l.pass(ctx, down, time.Now()); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	proto.Merge(out.(proto.Message), got)
	return nil
}

// NewStream implements grpc.ClientConnInterface: the stream ends at the hub.
func (l *line) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	hub, alive := l.control.serving()
	if l.pass(ctx, up, time.Now()) != nil || hub == nil {
		return nil, errLineDown
	}
	near, endNear := context.WithCancel(ctx)
	far, endFar := context.WithCancel(alive)
	context.AfterFunc(alive, endNear)
	context.AfterFunc(near, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.down && !l.told {
			l.unanswered = append(l.unanswered, endFar)
			return
		}
		endFar()
	})
	ups, downs := newQueue(), newQueue()
	client, server := &streamEnd{ctx: near, in: downs.out, send: ups.in}, &streamEnd{ctx: far, in: ups.out, send: downs.in}
	go l.carry(near, endNear, up, ups)
	go l.carry(near, endNear, down, downs)
	go func() {
		defer endFar()
		err := hub.Serve(&grpc.GenericServerStream[pb.FromReplica, pb.ToReplica]{ServerStream: server})
		if err == nil {
			err = io.EOF
		}
		downs.in <- parcel{end: err, sent: time.Now()}
	}()
	return client, nil
}

// carry takes the messages of one direction to the other end.
func (l *line) carry(ctx context.Context, end context.CancelFunc, direction int, q queue) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-q.in:
			if l.pass(ctx, direction, p.sent) != nil {
				end()
				return
			}
			q.out <- p
			if p.end == nil && l.doubled(direction) {
				q.out <- p
			}
		}
	}
}

// parcel is one message on its way, or the end of a direction.
type parcel struct {
	message proto.Message
	end     error
	sent    time.Time
}

// queue is one direction, longer than any run of the machine fills it.
type queue struct{ in, out chan parcel }

func newQueue() queue { return queue{make(chan parcel, 1<<12), make(chan parcel, 1<<13)} }

// goesOn is how long after a message is out its sender goes on: what it has not
// done before is then visible.
const goesOn = 5 * time.Millisecond

// streamEnd is one end of a stream, of either side.
type streamEnd struct {
	ctx  context.Context
	in   <-chan parcel
	send chan<- parcel
}

func (s *streamEnd) SendMsg(m any) error {
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	s.send <- parcel{message: proto.Clone(m.(proto.Message)), sent: time.Now()}
	time.Sleep(goesOn)
	return nil
}

func (s *streamEnd) RecvMsg(m any) error {
	select {
	case p := <-s.in:
		if p.end != nil {
			return p.end
		}
		proto.Merge(m.(proto.Message), p.message)
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *streamEnd) CloseSend() error {
	s.send <- parcel{end: io.EOF, sent: time.Now()}
	return nil
}

func (s *streamEnd) Context() context.Context   { return s.ctx }
func (*streamEnd) SetHeader(metadata.MD) error  { return nil }
func (*streamEnd) SendHeader(metadata.MD) error { return nil }
func (*streamEnd) SetTrailer(metadata.MD)       {}
func (*streamEnd) Header() (metadata.MD, error) { return nil, nil }
func (*streamEnd) Trailer() metadata.MD         { return nil }
