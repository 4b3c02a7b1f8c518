package revocation

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

const testLease = 10 * time.Second

// memoryLog is a Log that a test appends to.
type memoryLog struct {
	mu      sync.Mutex // guards the rest
	at      Position
	oldest  int64
	entries []Entry
	broken  error
	read    func() // runs between a position and the entries that are read for it
}

func newMemoryLog() *memoryLog { return &memoryLog{at: Position{Database: "a", Epoch: 1}} }

func (l *memoryLog) append(name string) int64 { return l.appendWhat(key(name)) }

func (l *memoryLog) appendWhat(what Key) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at.Seq++
	l.entries = append(l.entries, Entry{
		Seq: l.at.Seq, Kind: what.Kind, Key: what.Key, Server: identity.ServerID{1}, Life: time.Hour,
	})
	return l.at.Seq
}

func (l *memoryLog) set(edit func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit()
}

func (l *memoryLog) Position(context.Context) (Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.broken
}

func (l *memoryLog) OldestRevocation(context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.oldest, l.broken
}

func (l *memoryLog) RevocationsSince(_ context.Context, seq int64, limit int) ([]Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read != nil {
		l.read()
	}
	var out []Entry
	for _, e := range l.entries {
		if e.Seq > seq && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, l.broken
}

// drop is housekeeping that drops everything up to a seq.
func (l *memoryLog) drop(seq int64) {
	l.oldest = seq
	l.entries = slices.DeleteFunc(slices.Clone(l.entries), func(e Entry) bool { return e.Seq <= seq })
}

// memoryRoster is a Roster that notes what becomes of it.
type memoryRoster struct {
	mu     sync.Mutex // guards the rest
	listed map[string]time.Duration
	broken error
	before func(what string) // runs before each Add and Remove
}

func (r *memoryRoster) change(what string, edit func()) error {
	if r.before != nil {
		r.before(what)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return r.broken
	}
	if r.listed == nil {
		r.listed = map[string]time.Duration{}
	}
	edit()
	return nil
}

func (r *memoryRoster) Add(_ context.Context, name string, lease time.Duration) error {
	return r.change("add "+name, func() { r.listed[name] = lease })
}

func (r *memoryRoster) Remove(_ context.Context, name string) error {
	return r.change("remove "+name, func() { delete(r.listed, name) })
}

func (r *memoryRoster) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found := r.listed[name]
	return found
}

func key(name string) Key { return Key{KindAccessToken, name} }

func ping(number int64) *pb.FromReplica {
	return &pb.FromReplica{Kind: &pb.FromReplica_Ping{Ping: &pb.Ping{Number: number}}}
}

func confirm(seq, revision int64, ended ...*pb.Ended) *pb.FromReplica {
	return &pb.FromReplica{Kind: &pb.FromReplica_Confirm{Confirm: &pb.Confirm{Seq: seq, Revision: revision, Ended: ended}}}
}

func endedOf(what Key, streams int64) *pb.Ended {
	return &pb.Ended{Kind: int32(what.Kind), Key: what.Key, Streams: streams}
}

func pong(number, newest int64) *pb.Pong {
	return &pb.Pong{Number: number, Newest: newest, ControlUnixMs: bigBang.UnixMilli(), LeaseMs: testLease.Milliseconds()}
}

// revoked is a whole run of one message.
func revoked(after, seq int64, names ...string) *pb.Revoked {
	out := &pb.Revoked{Database: "a", Epoch: 1, After: after, Seq: seq}
	for i, name := range names {
		out.Entries = append(out.Entries, &pb.Entry{
			Seq: after + int64(i) + 1, Kind: int32(KindAccessToken), Key: name,
			ServerId: identity.ServerID{1}.String(), LifeSeconds: 3600,
		})
	}
	return out
}

func full(seq int64, names ...string) *pb.Revoked {
	out := revoked(0, seq, names...)
	out.Full = true
	return out
}

func toReplica(m *pb.Revoked) *pb.ToReplica {
	return &pb.ToReplica{Kind: &pb.ToReplica_Revoked{Revoked: m}}
}
