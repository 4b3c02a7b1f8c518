package revocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

const (
	pingEvery  = time.Second
	watchEvery = 250 * time.Millisecond // clocks that jumped are found so soon
	keepEvery  = time.Second
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	resignWait = 3 * time.Second // to cut the streams, and for control to read it
)

// Run follows the log until ctx ends, connecting anew whenever the stream
// breaks. It returns ErrOtherDatabase when nothing but a new start helps.
func (f *Follower) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.watchLease(ctx) })
	group.Go(func() error {
		wait := retryFirst
		for ctx.Err() == nil {
			started := time.Now()
			err := f.follow(ctx)
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // told to stop
			case errors.Is(err, ErrOtherDatabase):
				return err
			case time.Since(started) > 2*pingEvery:
				wait = retryFirst
			}
			f.cfg.Slog.Warn("revocation stream ended", "error", err, "again_in", wait)
			sleep(ctx, wait/2+rand.N(wait/2))
			wait = min(2*wait, retryMost)
		}
		return nil
	})
	return group.Wait()
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// follow runs one stream. It outlives ctx by as much as it takes to resign.
func (f *Follower) follow(ctx context.Context) error {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	connected := context.AfterFunc(ctx, cancel)
	stream, err := f.cfg.Client.Revocations(streamCtx)
	connected()
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	in := make(chan *pb.ToReplica)
	var broken error // set before in is closed
	go func() {
		defer close(in)
		broken = receive(streamCtx, stream, in)
	}()
	// Who is told to stop has time to resign, and no more: control may be frozen.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(resignWait, cancel) })
	defer stop()
	err = f.handle(ctx, stream, in)
	if ctx.Err() == nil {
		cancel() // ends receive
	}
	for range in { // until control has read the last message
	}
	return cmp.Or(err, broken)
}

func receive(ctx context.Context, stream pb.Control_RevocationsClient, in chan<- *pb.ToReplica) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		select {
		case in <- message:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handle applies what comes, pings every second and confirms what settings
// have ended. One goroutine does all of it, so that a pong is judged only after
// everything that came before it.
func (f *Follower) handle(ctx context.Context, stream pb.Control_RevocationsClient, in <-chan *pb.ToReplica) error {
	s, err := f.open(stream.Send)
	ping, keep := time.NewTicker(pingEvery), time.NewTicker(keepEvery)
	defer ping.Stop()
	defer keep.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return errors.Join(s.resign(), stream.CloseSend())
		case <-ping.C:
			err = s.ping()
		case <-keep.C:
			f.keep()
		case <-f.ended.changed:
			err = s.settings()
		case message, open := <-in:
			if !open {
				return nil
			}
			err = s.heard(message)
		}
	}
	return err
}

// watchLease cuts every stream in the moment in which the lease is over.
func (f *Follower) watchLease(ctx context.Context) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.renewed:
		case <-ticker.C:
			f.watch()
			continue
		case <-timer.C:
			f.watch()
		}
		if held := f.lease.Load(); held.held(f.cfg.Clock()) {
			elapsed, _ := f.cfg.Clock().since(held.begun)
			timer.Reset(held.length - elapsed)
		}
	}
}
