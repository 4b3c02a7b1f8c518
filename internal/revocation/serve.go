package revocation

import (
	"errors"
	"io"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// Serve runs one replica's stream until it ends.
func (h *Hub) Serve(stream pb.Control_RevocationsServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	l, err := h.join(stream.Context(), first.GetHello(), stream.Send)
	if err != nil {
		return err
	}
	defer l.leave()

	// Recv comes back only when the stream ends, so its goroutine ends after
	// Serve does; what it still has to say is then of no use.
	pings, received := make(chan int64, 1), make(chan error, 1)
	go func() { received <- l.receive(stream, pings) }()
	return l.serve(stream, first.GetHello(), pings, received)
}

// receive reads pings and confirmations.
func (l *link) receive(stream pb.Control_RevocationsServer, pings chan<- int64) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		ping, err := l.heard(in)
		if err != nil {
			return err
		}
		if ping == 0 {
			continue
		}
		select {
		case pings <- ping:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// serve carries entries and answers pings, until the replica says no more.
func (l *link) serve(stream pb.Control_RevocationsServer, hello *pb.Hello, pings <-chan int64, received <-chan error) error {
	ctx := stream.Context()
	wake, stop := l.hub.wake.listen()
	defer stop()
	err := l.start(ctx, hello)
	for err == nil {
		select {
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case ping := <-pings:
			err = l.pong(ctx, ping)
		case <-wake:
			err = l.bring(ctx)
		}
	}
	return err
}
