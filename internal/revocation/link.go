package revocation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// link is one stream of a replica, from the hub's end. Its methods without I/O
// are the protocol; Hub.Serve carries their messages. heard is called by the
// goroutine that receives, the others by the one that sends.
type link struct {
	hub   *Hub
	r     *replica
	send  func(*pb.ToReplica) error
	floor int64    // the settings that were pushed when the link was opened
	at    Position // that the replica has been sent
	told  int64    // the same seq; Hub.mu guards it
}

// What may be listed: each name is a row in the database, until its lease is
// over.
const (
	nameMost     = 256
	replicasMost = 4096
)

// entriesPerMessage bounds one message of the stream to well under 1 MiB.
const entriesPerMessage = 4096

// join lists the replica, before it gets a set or a lease, and begins a link.
func (h *Hub) join(ctx context.Context, hello *pb.Hello, send func(*pb.ToReplica) error) (*link, error) {
	name := hello.GetReplica()
	if name == "" || len(name) > nameMost || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, status.Errorf(codes.InvalidArgument, "the first message is a hello with the replica's name: 1 to %d visible ASCII characters", nameMost)
	}
	h.listing.Lock()
	defer h.listing.Unlock()
	if h.full(name) {
		return nil, status.Errorf(codes.ResourceExhausted, "%d replicas are listed: no further one is", replicasMost)
	}
	if err := h.cfg.Roster.Add(ctx, name, h.cfg.Lease); err != nil {
		return nil, unavailable(fmt.Errorf("listing replica %s: %w", name, err))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.replicas[name]
	if r == nil {
		r = &replica{name: name, since: h.cfg.Now()}
		h.replicas[name] = r
	}
	r.links++
	r.resigned = false
	r.leaseUntil = later(r.leaseUntil, h.cfg.Now().Add(h.cfg.Lease))
	h.notify()
	return &link{hub: h, r: r, send: send, floor: h.cfg.Pushed()}, nil
}

// full reports whether there is no room for a replica that is not listed yet.
func (h *Hub) full(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.replicas[name] != nil || len(h.replicas) < replicasMost {
		return false
	}
	listed := 0
	for _, r := range h.replicas {
		if !h.gone(r) {
			listed++
		}
	}
	return listed >= replicasMost
}

// leave keeps the replica listed until its lease has run out: it may still be
// deciding, only unheard.
func (l *link) leave() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.r.links--
	l.hub.notify()
}

// heard takes a message of the replica's and returns the number of a ping that
// wants an answer, or 0. A ping moves the replica's lease before anything is
// read to answer it: whoever commits an entry afterwards and then looks at the
// lease sees one that covers every older answer.
func (l *link) heard(in *pb.FromReplica) (ping int64, err error) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case l.r.resigned:
		return 0, status.Error(codes.InvalidArgument, "a message came after a resignation")
	case in.GetPing().GetNumber() > 0:
		l.r.leaseUntil = later(l.r.leaseUntil, h.cfg.Now().Add(h.cfg.Lease))
		return in.GetPing().GetNumber(), nil
	case in.GetConfirm() != nil:
		return 0, l.confirmed(in.GetConfirm())
	case in.GetResign() != nil:
		l.r.resigned = true
		h.notify()
		return 0, nil
	}
	return 0, status.Error(codes.InvalidArgument, "a message after hello is a ping with a number, a confirmation or a resignation")
}

// confirmed notes what the replica runs. One that confirms what it has not been
// sent is not believed. Hub.mu is held.
func (l *link) confirmed(c *pb.Confirm) error {
	if c.GetSeq() > l.told || c.GetRevision() > l.hub.cfg.Pushed() {
		return status.Errorf(codes.InvalidArgument, "seq %d and revision %d are confirmed; sent were %d and %d",
			c.GetSeq(), c.GetRevision(), l.told, l.hub.cfg.Pushed())
	}
	l.r.confirmed = max(l.r.confirmed, c.GetSeq())
	l.r.revision = max(l.r.revision, c.GetRevision())
	for _, e := range c.GetEnded() {
		l.r.ended = append(l.r.ended, endedBy{Key{Kind(e.GetKind()), e.GetKey()}, e.GetStreams(), c.GetSeq(), c.GetRevision()})
	}
	l.r.ended = l.r.ended[max(0, len(l.r.ended)-endedKept):]
	l.hub.notify()
	return nil
}

// start brings the replica to the newest entry: with what it missed, or with
// the full set when it has none, its log is another one, or it is too far
// behind.
func (l *link) start(ctx context.Context, hello *pb.Hello) error {
	now, err := l.hub.position(ctx)
	if err != nil {
		return unavailable(err)
	}
	oldest, err := l.hub.cfg.Log.OldestRevocation(ctx)
	if err != nil {
		return unavailable(err)
	}
	from := Position{Database: hello.GetDatabase(), Epoch: hello.GetEpoch(), Seq: hello.GetSeq()}
	if now.Behind(from) {
		return status.Errorf(codes.FailedPrecondition, "replica %s has seen epoch %d, seq %d, and the database is at epoch %d, seq %d: it was restored from an older copy; stop control and run `arbiter store accept-restore`",
			l.r.name, from.Epoch, from.Seq, now.Epoch, now.Seq)
	}
	if !hello.GetEmpty() && from.SameLog(now) && from.Seq >= oldest {
		return l.run(ctx, from, now, false)
	}
	return l.run(ctx, Position{Database: now.Database, Epoch: now.Epoch}, now, true)
}

// bring sends what is new.
func (l *link) bring(ctx context.Context) error {
	now, err := l.hub.position(ctx)
	if err != nil {
		return unavailable(err)
	}
	if !now.Covers(l.at) {
		return unavailable(ErrLogReplaced)
	}
	if now.Seq == l.at.Seq {
		return nil
	}
	return l.run(ctx, l.at, now, false)
}

// pong answers a ping: with the newest seq, read after the ping came, behind
// every entry up to it.
func (l *link) pong(ctx context.Context, number int64) error {
	if err := l.bring(ctx); err != nil {
		return err
	}
	return l.send(&pb.ToReplica{Kind: &pb.ToReplica_Pong{Pong: &pb.Pong{
		Number: number, Newest: l.at.Seq, Revision: max(l.floor, l.hub.cfg.Due()),
		ControlUnixMs: l.hub.cfg.Now().UnixMilli(), LeaseMs: l.hub.cfg.Lease.Milliseconds(),
	}}})
}

// run sends the kept entries after from, up to now, in messages that can be
// told to belong together. Entries that were dropped leave gaps, so the run
// ends at now, or beyond it, where its last entry may be.
func (l *link) run(ctx context.Context, from, now Position, full bool) error {
	l.at = Position{Database: now.Database, Epoch: now.Epoch, Seq: from.Seq}
	for {
		entries, err := l.read(ctx, full)
		if err != nil {
			return unavailable(err)
		}
		out := &pb.Revoked{
			Full: full, More: len(entries) == entriesPerMessage,
			Database: now.Database, Epoch: now.Epoch, After: from.Seq,
		}
		for _, e := range entries {
			out.Entries = append(out.Entries, &pb.Entry{
				Seq: e.Seq, Kind: int32(e.Kind), Key: e.Key, ServerId: e.Server.String(),
				LifeSeconds: int64(e.Life / time.Second),
			})
			l.at.Seq = e.Seq
		}
		if !out.GetMore() {
			l.at.Seq = max(l.at.Seq, now.Seq)
		}
		out.Seq = l.at.Seq
		l.tell(out.GetSeq())
		if err := l.send(&pb.ToReplica{Kind: &pb.ToReplica_Revoked{Revoked: out}}); err != nil {
			return err
		}
		if !out.GetMore() {
			return nil
		}
	}
}

var errGap = errors.New("entries left the log before this replica was sent them: it needs the full set")

// read returns the entries after what was sent. They are none of a log that
// went back since its position was read: the position is read once more, after
// them. And one can leave the log before it is read here, since housekeeping
// goes by a clock that can be set: only the full set may lack it.
func (l *link) read(ctx context.Context, full bool) ([]Entry, error) {
	entries, err := l.hub.cfg.Log.RevocationsSince(ctx, l.at.Seq, entriesPerMessage)
	if err != nil {
		return nil, err
	}
	dropped, err := l.hub.cfg.Log.OldestRevocation(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := l.hub.position(ctx); err != nil {
		return nil, err
	}
	if !full && dropped > l.at.Seq {
		return nil, errGap
	}
	return entries, nil
}

// tell notes what the replica may confirm from now on.
func (l *link) tell(seq int64) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.told = seq
}

func unavailable(err error) error {
	if errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}
