package revocation

import (
	"context"
	"errors"
	"io"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
