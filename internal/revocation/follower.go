package revocation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// FollowerConfig is what a Follower needs.
type FollowerConfig struct {
	Client  pb.ControlClient
	Replica string                    // unique among the replicas
	Cut     func(keys ...Key) []int64 // ends the live streams of each key, says how many it had
	CutAll  func()                    // ends every live stream: the lease is lost
	Runs    func() int64              // revision of the settings in use; nil: not asked
	Now     func() time.Time          // default time.Now
	Slog    *slog.Logger
}

// Follower is a replica's end: it holds the set and the lease.
//
// The invariant that control's answer to a delete rests on: once an entry is
// confirmed, no request is accepted that it ends, and no stream of it lives;
// and without a lease nothing is accepted and no stream lives. So an entry is
// first in the set, then its streams are cut, then it is confirmed; and a
// lease begins when a ping is sent, not when its answer comes.
type Follower struct {
	cfg     FollowerConfig
	set     atomic.Pointer[Set]
	lease   atomic.Pointer[heldLease] // nil: none yet
	ahead   atomic.Int64              // control's clock minus ours, nanoseconds
	at      Position                  // only Run's goroutine
	renewed chan struct{}             // there is another lease: watchLease looks again
}

// heldLease is one lease, and that its end was dealt with.
type heldLease struct {
	until time.Time
	lost  sync.Once // cuts every stream
}

// leaseMargin is how long before its lease is over a replica gives it up: its
// streams have ended when control stops waiting for it.
const leaseMargin = time.Second

const (
	pingEvery  = time.Second
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// NewFollower returns a follower without a set or a lease: nothing may be
// accepted until Run has both.
func NewFollower(cfg FollowerConfig) *Follower {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	f := &Follower{cfg: cfg, renewed: make(chan struct{}, 1)}
	f.set.Store(&Set{})
	return f
}

// Set is what is revoked now.
func (f *Follower) Set() *Set { return f.set.Load() }

// Alive reports whether the replica holds its lease.
func (f *Follower) Alive() bool {
	held := f.lease.Load()
	return held != nil && f.cfg.Now().Before(held.until)
}

// Now is control's time, carried forward by our own clock: expiries are judged
// by it.
func (f *Follower) Now() time.Time { return f.cfg.Now().Add(time.Duration(f.ahead.Load())) }

// Run follows the log until ctx ends, connecting anew whenever it breaks.
func (f *Follower) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.watchLease(ctx) })
	group.Go(func() error {
		wait := retryFirst
		for ctx.Err() == nil {
			started := f.cfg.Now()
			err := f.follow(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // told to stop
			}
			if f.cfg.Now().Sub(started) > 2*pingEvery {
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

// follow runs one stream.
func (f *Follower) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.cfg.Client.Revocations(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	hello := &pb.Hello{Replica: f.cfg.Replica, Database: f.at.Database, Epoch: f.at.Epoch, Seq: f.at.Seq}
	if err := stream.Send(&pb.FromReplica{Kind: &pb.FromReplica_Hello{Hello: hello}}); err != nil {
		return fmt.Errorf("saying hello: %w", err)
	}
	in := make(chan *pb.ToReplica)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			message, err := stream.Recv()
			if err != nil {
				return fmt.Errorf("receiving: %w", err)
			}
			select {
			case in <- message:
			case <-ctx.Done():
				return nil
			}
		}
	})
	group.Go(func() error {
		defer cancel() // ends Recv
		return f.handle(ctx, stream, in)
	})
	return group.Wait()
}

// handle applies what comes and pings every second. One goroutine does both,
// so that a pong is judged only after everything that came before it.
func (f *Follower) handle(ctx context.Context, stream pb.Control_RevocationsClient, in <-chan *pb.ToReplica) error {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	var (
		loaded bool                    // the start set is complete
		run    []*pb.Revoked           // messages of an unfinished run
		sent   = map[int64]time.Time{} // ping -> when, noted before sending
		number int64
	)
	sendPing := func() error {
		number++
		sent[number] = f.cfg.Now()
		delete(sent, number-64)
		return stream.Send(&pb.FromReplica{Kind: &pb.FromReplica_Ping{Ping: &pb.Ping{Number: number, Applied: f.at.Seq}}})
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if !loaded {
				continue
			}
			if err := sendPing(); err != nil {
				return fmt.Errorf("sending a ping: %w", err)
			}
		case message := <-in:
			if pong := message.GetPong(); pong != nil {
				f.renew(pong, sent)
				continue
			}
			if message.GetRevoked() == nil {
				return errors.New("control sent a message of an unknown kind")
			}
			run = append(run, message.GetRevoked())
			if message.GetRevoked().GetMore() {
				continue
			}
			if err := f.apply(stream, run); err != nil {
				return err
			}
			run = nil
			if !loaded {
				loaded = true
				if err := sendPing(); err != nil {
					return fmt.Errorf("sending the first ping: %w", err)
				}
			}
		}
	}
}

// apply takes a whole run of entries: set, cut, confirm, in this order.
func (f *Follower) apply(stream pb.Control_RevocationsClient, run []*pb.Revoked) error {
	last := run[len(run)-1]
	entries, err := entriesOf(run)
	if err != nil {
		return err
	}
	if run[0].GetFull() {
		f.set.Store(Full(entries, last.GetSeq()))
	} else {
		f.set.Store(f.set.Load().With(entries, last.GetSeq(), f.Now()))
	}
	keys := make([]Key, len(entries))
	for i, e := range entries {
		keys[i] = Key{e.Kind, e.Key}
	}
	for i, ended := range f.cfg.Cut(keys...) {
		if ended > 0 {
			if err := confirm(stream, entries[i].Seq, ended); err != nil {
				return err
			}
		}
	}
	f.at = Position{Database: last.GetDatabase(), Epoch: last.GetEpoch(), Seq: last.GetSeq()}
	return confirm(stream, f.at.Seq, 0)
}

func confirm(stream pb.Control_RevocationsClient, seq, streams int64) error {
	err := stream.Send(&pb.FromReplica{Kind: &pb.FromReplica_Confirm{Confirm: &pb.Confirm{Seq: seq, StreamsEnded: streams}}})
	if err != nil {
		return fmt.Errorf("confirming entry %d: %w", seq, err)
	}
	return nil
}

func entriesOf(run []*pb.Revoked) ([]Entry, error) {
	var entries []Entry
	for _, message := range run {
		for _, e := range message.GetEntries() {
			server, err := identity.ParseServerID(e.GetServerId())
			if err != nil {
				return nil, fmt.Errorf("reading entry %d: server: %w", e.GetSeq(), err)
			}
			entries = append(entries, Entry{
				Seq: e.GetSeq(), Kind: Kind(e.GetKind()), Key: e.GetKey(), Server: server, Until: time.Unix(e.GetUntilUnix(), 0),
			})
		}
	}
	return entries, nil
}

// renew moves the lease to lease after its ping was sent, when everything up
// to the seq that the pong names is applied, and the settings that it names.
func (f *Follower) renew(pong *pb.Pong, sent map[int64]time.Time) {
	at, found := sent[pong.GetNumber()]
	if !found || pong.GetNewest() > f.at.Seq {
		return
	}
	if f.cfg.Runs != nil && f.cfg.Runs() < pong.GetRevision() {
		return
	}
	f.endLost() // a lease that was lost meanwhile is not mended by another one
	f.lease.Store(&heldLease{until: at.Add(time.Duration(pong.GetLeaseMs())*time.Millisecond - leaseMargin)})
	// Control wrote its time after the ping was sent: taken as if at once, the
	// difference errs towards a clock that is ahead, and a credential ends early.
	f.ahead.Store(time.UnixMilli(pong.GetControlUnixMs()).Sub(at).Nanoseconds())
	select {
	case f.renewed <- struct{}{}:
	default:
	}
}

// endLost cuts every stream of a lease that is over, once.
func (f *Follower) endLost() {
	held := f.lease.Load()
	if held == nil || f.cfg.Now().Before(held.until) {
		return
	}
	held.lost.Do(func() {
		f.cfg.Slog.Error("lease lost: refusing everything until control answers")
		f.cfg.CutAll()
	})
}

// watchLease cuts every stream in the moment in which the lease is over.
func (f *Follower) watchLease(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.renewed:
		case <-timer.C:
			f.endLost()
		}
		if held := f.lease.Load(); held != nil && f.cfg.Now().Before(held.until) {
			timer.Reset(held.until.Sub(f.cfg.Now()))
		}
	}
}
