package revocation

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// Log is where entries are kept. Reads after a commit see it.
type Log interface {
	// Position is the newest entry.
	Position(ctx context.Context) (Position, error)
	// RevocationsSince lists kept entries after seq, in order.
	RevocationsSince(ctx context.Context, seq int64, limit int) ([]Entry, error)
	// OldestRevocation is the highest seq that was ever dropped: a reader
	// behind it has a gap and needs the full set.
	OldestRevocation(ctx context.Context) (int64, error)
}

// HubConfig is what a Hub needs.
type HubConfig struct {
	Log   Log
	Lease time.Duration    // how long a replica may go on unconfirmed
	Now   func() time.Time // default time.Now
	Slog  *slog.Logger
	// Due is the revision of the settings that every replica must run by now;
	// who is behind it gets no lease. Nil: any will do.
	Due func() int64
	// Outlived is the longest lease that an earlier hub may have given to a
	// replica that this one does not know; 0: there is no such replica.
	Outlived time.Duration
}

// Hub is control's end: it lists the replicas, carries entries to them and
// waits for their confirmations.
type Hub struct {
	cfg   HubConfig
	since time.Time

	// mu guards the replicas and changed, which is closed and made anew
	// whenever a replica confirms, comes or goes.
	mu       sync.Mutex
	replicas map[string]*replica
	changed  chan struct{}

	wake broadcast
}

// replica is one extauthz as its hub knows it; Hub.mu guards all of it.
type replica struct {
	name       string
	streams    int // open streams; a replica may be reconnecting
	confirmed  int64
	ended      []cut
	leaseUntil time.Time // no later than this can it accept what it has not confirmed
	since      time.Time
}

// cut is how many live streams a replica ended to reach seq.
type cut struct{ seq, streams int64 }

// entriesPerMessage bounds one message of the stream to well under 1 MiB.
const entriesPerMessage = 4096

// NewHub makes a hub without replicas.
func NewHub(cfg HubConfig) *Hub {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Hub{cfg: cfg, since: cfg.Now(), replicas: map[string]*replica{}, changed: make(chan struct{})}
}

// Wake tells every stream that there may be new entries.
func (h *Hub) Wake() { h.wake.send() }

// Serve runs one replica's stream until it ends.
func (h *Hub) Serve(stream pb.Control_RevocationsServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil || hello.GetReplica() == "" {
		return status.Error(codes.InvalidArgument, "the first message is a hello with the replica's name")
	}
	r := h.join(hello.GetReplica())
	defer h.leave(r)

	// Recv comes back only when the stream ends, so its goroutine ends after
	// Serve does; what it still has to say is then of no use.
	pings, received := make(chan ping, 1), make(chan error, 1)
	go func() { received <- h.receive(stream, r, pings) }()
	return h.send(stream, hello, pings, received)
}

// ping is a replica's, with nothing else to answer it but its number.
type ping struct{ number int64 }

// receive reads pings and confirmations. A ping moves the replica's lease
// before anything is read to answer it: whoever commits an entry afterwards
// and then looks at the lease sees one that covers every older answer.
func (h *Hub) receive(stream pb.Control_RevocationsServer, r *replica, pings chan<- ping) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case in.GetPing() != nil:
			h.extend(r)
			select {
			case pings <- ping{in.GetPing().GetNumber()}:
			case <-stream.Context().Done():
				return nil
			}
		case in.GetConfirm() != nil:
			h.confirm(r, in.GetConfirm().GetSeq(), in.GetConfirm().GetStreamsEnded())
		default:
			return status.Error(codes.InvalidArgument, "a message after hello is a ping or a confirmation")
		}
	}
}

// send carries entries and answers pings, until the replica says no more. What
// it sends is in seq order, and a pong follows every entry up to the seq that
// it names.
func (h *Hub) send(stream pb.Control_RevocationsServer, hello *pb.Hello, pings <-chan ping, received <-chan error) error {
	ctx := stream.Context()
	at, err := h.sendStart(ctx, stream, hello)
	if err != nil {
		return err
	}
	wake, stop := h.wake.listen()
	defer stop()
	for {
		select {
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case p := <-pings:
			if at, err = h.sendSince(ctx, stream, at); err != nil {
				return err
			}
			if err := stream.Send(&pb.ToReplica{Kind: &pb.ToReplica_Pong{Pong: &pb.Pong{
				Number: p.number, Newest: at.Seq,
				ControlUnixMs: h.cfg.Now().UnixMilli(), LeaseMs: h.cfg.Lease.Milliseconds(), Revision: h.due(),
			}}}); err != nil {
				return err
			}
		case <-wake:
			if at, err = h.sendSince(ctx, stream, at); err != nil {
				return err
			}
		}
	}
}

func (h *Hub) due() int64 {
	if h.cfg.Due == nil {
		return 0
	}
	return h.cfg.Due()
}

// sendStart brings the replica to the newest entry: with what it missed, or
// with the full set when its log is another one or it is too far behind.
func (h *Hub) sendStart(ctx context.Context, stream pb.Control_RevocationsServer, hello *pb.Hello) (Position, error) {
	now, err := h.cfg.Log.Position(ctx)
	if err != nil {
		return Position{}, unavailable(err)
	}
	oldest, err := h.cfg.Log.OldestRevocation(ctx)
	if err != nil {
		return Position{}, unavailable(err)
	}
	from := Position{Database: hello.GetDatabase(), Epoch: hello.GetEpoch(), Seq: hello.GetSeq()}
	sameLog := from.Database == now.Database && from.Epoch == now.Epoch
	if sameLog && from.Seq >= oldest && from.Seq <= now.Seq {
		return h.sendRun(ctx, stream, from, now, false)
	}
	return h.sendRun(ctx, stream, Position{Database: now.Database, Epoch: now.Epoch}, now, true)
}

func (h *Hub) sendSince(ctx context.Context, stream pb.Control_RevocationsServer, at Position) (Position, error) {
	now, err := h.cfg.Log.Position(ctx)
	if err != nil {
		return at, unavailable(err)
	}
	if now.Database != at.Database || now.Epoch != at.Epoch || now.Seq < at.Seq {
		return at, status.Error(codes.Aborted, "the revocation log is another one now: connect again")
	}
	if now.Seq == at.Seq {
		return at, nil
	}
	return h.sendRun(ctx, stream, at, now, false)
}

// sendRun sends the kept entries after from, up to now, in messages that can
// be told to belong together.
func (h *Hub) sendRun(ctx context.Context, stream pb.Control_RevocationsServer, from, now Position, full bool) (Position, error) {
	for {
		entries, err := h.cfg.Log.RevocationsSince(ctx, from.Seq, entriesPerMessage)
		if err != nil {
			return from, unavailable(err)
		}
		more := len(entries) == entriesPerMessage
		out := &pb.Revoked{Full: full, More: more, Database: now.Database, Epoch: now.Epoch}
		for _, e := range entries {
			out.Entries = append(out.Entries, &pb.Entry{
				Seq: e.Seq, Kind: int32(e.Kind), Key: e.Key, ServerId: e.Server.String(), UntilUnix: e.Until.Unix(),
			})
			from.Seq = e.Seq
		}
		from.Seq = max(from.Seq, seqAfter(more, now.Seq))
		out.Seq = from.Seq
		if err := stream.Send(&pb.ToReplica{Kind: &pb.ToReplica_Revoked{Revoked: out}}); err != nil {
			return from, err
		}
		if !more {
			return Position{Database: now.Database, Epoch: now.Epoch, Seq: from.Seq}, nil
		}
		full = false
	}
}

// seqAfter is the seq at the end of a run: entries that were dropped leave
// gaps, so it can be beyond the last entry sent.
func seqAfter(more bool, newest int64) int64 {
	if more {
		return 0
	}
	return newest
}

func unavailable(err error) error { return status.Error(codes.Unavailable, err.Error()) }

func (h *Hub) join(name string) *replica {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.replicas[name]
	if r == nil {
		r = &replica{name: name, since: h.cfg.Now()}
		h.replicas[name] = r
	}
	r.streams++
	r.leaseUntil = later(r.leaseUntil, h.cfg.Now().Add(h.cfg.Lease))
	h.notify()
	return r
}

// leave keeps the replica listed until its lease has run out: it may still be
// deciding, only unheard.
func (h *Hub) leave(r *replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.streams--
	h.notify()
}

func (h *Hub) extend(r *replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.leaseUntil = later(r.leaseUntil, h.cfg.Now().Add(h.cfg.Lease))
}

func (h *Hub) confirm(r *replica, seq, streams int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq > r.confirmed {
		r.confirmed = seq
	}
	if streams > 0 {
		r.ended = append(r.ended, cut{seq, streams})
		r.ended = r.ended[max(0, len(r.ended)-1024):]
	}
	h.notify()
}

// notify wakes every waiter. Hub.mu is held.
func (h *Hub) notify() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ReplicaState is what the hub knows of one replica.
type ReplicaState struct {
	Name       string
	Connected  bool
	Since      time.Time
	Confirmed  int64
	LeaseUntil time.Time
}

// Replicas lists the replicas that are connected or may still hold a lease.
func (h *Hub) Replicas() []ReplicaState {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []ReplicaState
	for name, r := range h.replicas {
		if r.streams == 0 && !h.cfg.Now().Before(r.leaseUntil) {
			delete(h.replicas, name)
			continue
		}
		out = append(out, ReplicaState{name, r.streams > 0, r.since, r.confirmed, r.leaseUntil})
	}
	slices.SortFunc(out, func(a, b ReplicaState) int { return compareText(a.Name, b.Name) })
	return out
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Confirmed waits until every replica that was listed after seq was committed
// has confirmed it, or can no longer accept anything because its lease ran
// out. It is called after the commit. When ctx ends first, the replicas that
// are still open count as missing.
func (h *Hub) Confirmed(ctx context.Context, seq int64) Result {
	start := h.cfg.Now()
	h.Wake()
	h.awaitOutlived(ctx)
	waiting := map[string]time.Time{} // replica -> end of the lease it may hold without the entry
	for _, r := range h.Replicas() {
		waiting[r.Name] = r.LeaseUntil
	}
	result := Result{Replicas: len(waiting)}
	for len(waiting) > 0 {
		changed, next := h.settle(seq, waiting, &result)
		if len(waiting) == 0 {
			break
		}
		timer := time.NewTimer(next.Sub(h.cfg.Now()))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			for name := range waiting {
				result.Missing = append(result.Missing, name)
			}
			clear(waiting)
		}
		timer.Stop()
	}
	slices.Sort(result.Missing)
	result.Took = h.cfg.Now().Sub(start)
	return result
}

// awaitOutlived waits until nobody can hold a lease of an earlier hub. Whoever
// has come back meanwhile is listed afterwards.
func (h *Hub) awaitOutlived(ctx context.Context) {
	if left := h.outlived(); left > 0 {
		sleep(ctx, left)
	}
}

// Complete reports whether every replica that may hold a lease is listed.
func (h *Hub) Complete() bool { return h.outlived() <= 0 }

// outlived is how long a lease of an earlier hub may still be held.
func (h *Hub) outlived() time.Duration { return h.since.Add(h.cfg.Outlived).Sub(h.cfg.Now()) }

// settle moves replicas that confirmed, or whose lease is over, from waiting
// into result. It returns what announces the next change, and the end of the
// next lease.
func (h *Hub) settle(seq int64, waiting map[string]time.Time, result *Result) (<-chan struct{}, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var next time.Time
	for name, until := range waiting {
		r := h.replicas[name]
		switch {
		case r != nil && r.confirmed >= seq:
			result.Confirmed++
			for _, c := range r.ended {
				if c.seq == seq {
					result.StreamsEnded += c.streams
				}
			}
			delete(waiting, name)
		case !h.cfg.Now().Before(until):
			result.Missing = append(result.Missing, name)
			delete(waiting, name)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	return h.changed, next
}
