package revocation

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// FollowerConfig is what a Follower needs.
type FollowerConfig struct {
	Client  pb.ControlClient
	Replica string                    // unique among the replicas, and for one life of the process
	Cut     func(keys ...Key) []int64 // ends the live streams of each key, says how many it had
	CutAll  func()                    // ends every live stream
	Clock   Clock                     // default SystemClock
	Slog    *slog.Logger

	// Seen is the newest position that this machine has followed, from disk;
	// Saw is told when there is a newer one, at most once a second, and must not
	// block. A log that is behind is not followed.
	Seen Position
	Saw  func(Position)
}

// Follower is a replica's end: it holds what is revoked, and the lease. Its
// methods without I/O are the protocol; Run carries their messages.
type Follower struct {
	cfg      FollowerConfig
	known    atomic.Pointer[Known]
	lease    atomic.Pointer[lease]
	control  atomic.Pointer[controlTime]
	revision atomic.Int64 // of the settings in use

	// One goroutine at a time: Run's.
	seen   Position // the newest, of any stream or from disk
	saved  Position // what Saw was told
	loaded bool     // known is of a log, not the empty one of the start

	ended   endedStreams  // by settings; to be confirmed
	renewed chan struct{} // there is another lease: watch looks again
}

// controlTime is what control's clock said, and when on ours.
type controlTime struct {
	wall time.Time
	at   Instant
}

// ErrRestored says that control's log is an earlier state of what this replica
// has followed.
var ErrRestored = errors.New("control's database is behind what this replica has seen: it was restored from a copy, or is another's older copy; run `arbiter store accept-restore` on control's machine")

// ErrOtherDatabase says that control has changed to a database that this
// replica's settings are not of: the process has to start anew.
var ErrOtherDatabase = errors.New("control serves another database than before: start this replica again")

// NewFollower returns a follower that knows nothing and has no lease: nothing
// may be accepted until Run has both.
func NewFollower(cfg FollowerConfig) *Follower {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock
	}
	f := &Follower{cfg: cfg, seen: cfg.Seen, saved: cfg.Seen, renewed: make(chan struct{}, 1)}
	f.ended.changed = make(chan struct{}, 1)
	// Generations of two processes differ: a note for Guard may outlive one.
	f.known.Store(&Known{Set: &Set{}, Generation: uint64(cfg.Clock().Boot)})
	return f
}

// Known is what is revoked now.
func (f *Follower) Known() *Known { return f.known.Load() }

// Instant reads the replica's clocks.
func (f *Follower) Instant() Instant { return f.cfg.Clock() }

// Alive reports whether the replica holds its lease.
func (f *Follower) Alive() bool { return f.lease.Load().held(f.cfg.Clock()) }

// Now is control's time, carried forward by a clock of ours that nobody sets:
// expiries are judged by it. Without a lease there is none to judge.
func (f *Follower) Now() time.Time {
	at := f.control.Load()
	if at == nil {
		return time.Time{}
	}
	return at.wall.Add(f.cfg.Clock().Boot - at.at.Boot)
}

// Settings notes the revision of the settings in use, after they were swapped
// in and the streams that they end were cut.
func (f *Follower) Settings(revision int64, ended map[Key]int64) {
	f.revision.Store(revision)
	f.ended.add(ended)
}

// session is one stream to control, from the replica's end.
type session struct {
	f      *Follower
	send   func(*pb.FromReplica) error
	run    []*pb.Revoked     // messages of an unfinished run
	synced bool              // everything up to the stream's start is applied
	sent   map[int64]Instant // ping -> when, noted before sending
	number int64
}

// open begins a session: it says how far this replica is.
func (f *Follower) open(send func(*pb.FromReplica) error) (*session, error) {
	at, empty := f.Known().At, false
	if !f.loaded {
		at, empty = f.seen, true
	}
	hello := &pb.Hello{Replica: f.cfg.Replica, Database: at.Database, Epoch: at.Epoch, Seq: at.Seq, Empty: empty}
	if err := send(&pb.FromReplica{Kind: &pb.FromReplica_Hello{Hello: hello}}); err != nil {
		return nil, fmt.Errorf("saying hello: %w", err)
	}
	return &session{f: f, send: send, sent: map[int64]Instant{}}, nil
}

// pingsKept is how many pings wait for an answer; older answers would renew
// nothing.
const pingsKept = 64

// ping asks for a lease. The clock is read before the message leaves: the lease
// is counted from here.
func (s *session) ping() error {
	if !s.synced {
		return nil
	}
	s.number++
	s.sent[s.number] = s.f.cfg.Clock()
	delete(s.sent, s.number-pingsKept)
	if err := s.send(&pb.FromReplica{Kind: &pb.FromReplica_Ping{Ping: &pb.Ping{Number: s.number}}}); err != nil {
		return fmt.Errorf("sending a ping: %w", err)
	}
	return nil
}

// heard takes one message of control's.
func (s *session) heard(message *pb.ToReplica) error {
	switch {
	case message.GetPong() != nil:
		s.f.renew(message.GetPong(), s.sent)
		return nil
	case message.GetRevoked() == nil:
		return errors.New("control sent a message of an unknown kind")
	}
	s.run = append(s.run, message.GetRevoked())
	if message.GetRevoked().GetMore() {
		return nil
	}
	run := s.run
	s.run = nil
	if err := s.f.apply(run, s.send); err != nil {
		return err
	}
	if s.synced {
		return nil
	}
	s.synced = true
	return s.ping()
}

// resign gives the lease back, after nothing is accepted under it any more: a
// replica that is told to stop is not waited for.
func (s *session) resign() error {
	if held := s.f.lease.Load(); held != nil {
		held.over.Store(true)
	}
	s.f.watch()
	if err := s.send(&pb.FromReplica{Kind: &pb.FromReplica_Resign{Resign: &pb.Resign{}}}); err != nil {
		return fmt.Errorf("resigning: %w", err)
	}
	return nil
}

// settings confirms what settings have ended since the last confirmation.
func (s *session) settings() error {
	if !s.synced {
		return nil // the confirmation of the start says it
	}
	if err := s.f.confirm(nil, s.send); err != nil || s.f.Alive() {
		return err
	}
	return s.ping() // the settings may be what a lease was missing
}

// apply takes a whole run of entries: set, cut, confirm, in this order. A full
// set that is not the first one tells that entries were missed, or that the log
// is another one: nothing that is remembered or lives can be judged by it, so
// all of that ends too.
func (f *Follower) apply(run []*pb.Revoked, send func(*pb.FromReplica) error) error {
	known := f.Known()
	entries, at, err := readRun(run)
	if err != nil {
		return err
	}
	full := run[0].GetFull()
	now := f.cfg.Clock()
	switch {
	case now.Wall.IsZero():
		return errors.New("this machine's clocks cannot be read")
	case f.loaded && at.Database != known.At.Database:
		return ErrOtherDatabase
	case at.Behind(f.seen):
		return fmt.Errorf("%w (control at epoch %d, seq %d; seen epoch %d, seq %d)", ErrRestored, at.Epoch, at.Seq, f.seen.Epoch, f.seen.Seq)
	case !full && (!at.SameLog(known.At) || run[0].GetAfter() != known.At.Seq):
		return fmt.Errorf("control sent entries after seq %d to a replica at %d", run[0].GetAfter(), known.At.Seq)
	}
	next := &Known{Set: known.Set, At: at, Generation: known.Generation}
	if full {
		next.Set = &Set{}
		next.Generation++
	}
	next.Set = next.Set.With(entries, now.Boot)
	f.known.Store(next)
	f.seen, f.loaded = at, true
	var ended []*pb.Ended
	if full {
		f.cfg.CutAll()
	} else {
		ended = f.cut(entries)
	}
	return f.confirm(ended, send)
}

// cut ends the live streams of entries, and says how many each had.
func (f *Follower) cut(entries []Entry) []*pb.Ended {
	if len(entries) == 0 {
		return nil
	}
	keys := make([]Key, len(entries))
	for i, e := range entries {
		keys[i] = e.What()
	}
	var ended []*pb.Ended
	for i, streams := range f.cfg.Cut(keys...) {
		if streams > 0 {
			ended = append(ended, &pb.Ended{Kind: int32(keys[i].Kind), Key: keys[i].Key, Streams: streams})
		}
	}
	return ended
}

// confirm says what is applied. Streams have been cut before.
func (f *Follower) confirm(ended []*pb.Ended, send func(*pb.FromReplica) error) error {
	revision := f.revision.Load()
	ended = append(ended, f.ended.take()...)
	confirm := &pb.Confirm{Seq: f.Known().At.Seq, Revision: revision, Ended: ended}
	if err := send(&pb.FromReplica{Kind: &pb.FromReplica_Confirm{Confirm: confirm}}); err != nil {
		return fmt.Errorf("confirming seq %d: %w", confirm.GetSeq(), err)
	}
	return nil
}

func readRun(run []*pb.Revoked) (entries []Entry, at Position, err error) {
	for _, message := range run {
		for _, e := range message.GetEntries() {
			server, err := identity.ParseServerID(e.GetServerId())
			if err != nil {
				return nil, at, fmt.Errorf("reading entry %d: server: %w", e.GetSeq(), err)
			}
			entries = append(entries, Entry{
				Seq: e.GetSeq(), Kind: Kind(e.GetKind()), Key: e.GetKey(), Server: server,
				Life: time.Duration(e.GetLifeSeconds()) * time.Second,
			})
		}
	}
	last := run[len(run)-1]
	return entries, Position{Database: last.GetDatabase(), Epoch: last.GetEpoch(), Seq: last.GetSeq()}, nil
}

// renew begins another lease, counted from before its ping was sent: when
// everything up to the seq that the pong names is applied, and the settings
// that it names.
func (f *Follower) renew(pong *pb.Pong, sent map[int64]Instant) {
	begun, found := sent[pong.GetNumber()]
	if !found || pong.GetNewest() != f.Known().At.Seq || f.revision.Load() < pong.GetRevision() {
		return
	}
	length := time.Duration(pong.GetLeaseMs()) * time.Millisecond
	next := &lease{begun: begun, length: length - Margin(length)}
	f.watch() // a lease that was lost meanwhile is not mended by another one
	if !next.held(f.cfg.Clock()) {
		return
	}
	f.lease.Store(next)
	// Control wrote its time after the ping was sent: taken as if at once, the
	// difference errs towards a clock that is ahead, and a credential ends early.
	f.control.Store(&controlTime{wall: time.UnixMilli(pong.GetControlUnixMs()), at: begun})
	select {
	case f.renewed <- struct{}{}:
	default:
	}
}

// watch cuts every stream of a lease that is over, once.
func (f *Follower) watch() {
	held := f.lease.Load()
	if held == nil || held.held(f.cfg.Clock()) {
		return
	}
	held.lost.Do(func() {
		f.cfg.Slog.Warn("lease over: refusing everything until there is another")
		f.cfg.CutAll()
	})
}

// keep forgets entries whose time is over, and has the newest position kept.
func (f *Follower) keep() {
	if known := f.Known(); f.loaded {
		if set := known.Without(f.cfg.Clock().Boot); set != known.Set {
			f.known.Store(&Known{Set: set, At: known.At, Generation: known.Generation})
		}
	}
	if f.cfg.Saw != nil && f.seen != f.saved {
		f.saved = f.seen
		f.cfg.Saw(f.seen)
	}
}

// endedStreams are live streams that settings ended, until they are confirmed.
type endedStreams struct {
	mu      sync.Mutex // guards byKey
	byKey   map[Key]int64
	changed chan struct{}
}

func (e *endedStreams) add(ended map[Key]int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byKey == nil {
		e.byKey = map[Key]int64{}
	}
	for key, streams := range ended {
		e.byKey[key] += streams
	}
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func (e *endedStreams) take() []*pb.Ended {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []*pb.Ended
	for key, streams := range e.byKey {
		out = append(out, &pb.Ended{Kind: int32(key.Kind), Key: key.Key, Streams: streams})
	}
	e.byKey = nil
	return out
}
