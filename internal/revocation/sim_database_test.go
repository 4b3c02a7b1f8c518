package revocation

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// Times of the simulated world are shorter than the product's, so that entries
// leave the log and the sets while it runs; they depend on each other as
// CacheAge, Life and AnswerAge do.
const (
	simCacheAge = 12 * time.Second
	simCall     = 12 * time.Second // the longest call
	simCheck    = 4 * time.Second  // the longest Check
	simSlack    = 4 * time.Second
	simAnswer   = simCall + simCheck
)

func simLife(lease time.Duration) time.Duration {
	return max(simCacheAge, simCall) + lease + simCheck + simSlack
}

// token is what the world knows of a credential.
type token struct {
	id      int
	what    Key
	hash    Hash
	server  *server
	ended   time.Duration // when its end was answered; never: not yet
	doomed  bool          // somebody deletes it, or has
	journal bool          // control has noted its end beside the database
}

// server is what the world knows of a server.
type server struct {
	id      int
	what    Key
	hash    Hash
	ended   time.Duration // when its deletion or disabling was answered
	deleted bool
	busy    bool // somebody changes it
	journal bool
}

const never = time.Duration(1<<63 - 1)

// settings are what control pushes, at one revision.
type settings struct {
	revision int64
	refused  []bool // by server: disabled or deleted
}

// database is what is on control's disk.
type database struct {
	at       Position
	oldest   int64
	entries  []Entry
	tokens   []bool // by token: it exists
	deleted  []bool // by server
	disabled []bool // by server
	revision int64
	roster   map[string]time.Duration
}

func (d *database) copy() *database {
	c := *d
	c.entries, c.tokens = slices.Clone(d.entries), slices.Clone(d.tokens)
	c.deleted, c.disabled = slices.Clone(d.deleted), slices.Clone(d.disabled)
	c.roster = maps.Clone(d.roster)
	return &c
}

func (d *database) resolves(t *token) bool {
	return t.id < len(d.tokens) && d.tokens[t.id] && !d.deleted[t.server.id]
}

func (d *database) settings() *settings {
	out := &settings{revision: d.revision, refused: slices.Clone(d.disabled)}
	for i, deleted := range d.deleted {
		out.refused[i] = out.refused[i] || deleted
	}
	return out
}

func (d *database) append(what Key, now time.Time, life time.Duration) int64 {
	d.at.Seq++
	d.entries = append(d.entries, Entry{
		Seq: d.at.Seq, Kind: what.Kind, Key: what.Key, Server: identity.ServerID{1}, Until: now.Add(life), Life: life,
	})
	return d.at.Seq
}

// drop is housekeeping: entries whose time is over leave the log.
func (d *database) drop(now time.Time) {
	d.entries = slices.DeleteFunc(slices.Clone(d.entries), func(e Entry) bool {
		if e.Until.After(now) {
			return false
		}
		d.oldest = max(d.oldest, e.Seq)
		return true
	})
}

// disk is a Log and a Roster whose reads and writes take time, before and
// after what they do.
type disk struct{ s *sim }

func (k disk) io() {
	s := k.s
	switch n := s.pick(200); {
	case n < s.stalls:
		s.wait(s.upTo(3 * time.Second))
	case n < 40:
		s.wait(s.upTo(10 * time.Millisecond))
	}
}

func (k disk) Position(context.Context) (Position, error) {
	k.io()
	at := k.s.db.at
	k.io()
	return at, nil
}

func (k disk) OldestRevocation(context.Context) (int64, error) {
	k.io()
	oldest := k.s.db.oldest
	k.io()
	return oldest, nil
}

func (k disk) RevocationsSince(_ context.Context, seq int64, limit int) ([]Entry, error) {
	k.io()
	if ambush := k.s.ambush; ambush != nil {
		k.s.ambush = nil
		ambush()
	}
	entries := k.s.db.entries
	first, _ := slices.BinarySearchFunc(entries, seq+1, func(e Entry, seq int64) int { return int(e.Seq - seq) })
	out := slices.Clone(entries[first:min(len(entries), first+limit)])
	k.io()
	return out, nil
}

func (k disk) Add(_ context.Context, replica string, lease time.Duration) error {
	k.io()
	k.s.db.roster[replica] = max(lease, k.s.db.roster[replica])
	k.io()
	return nil
}

func (k disk) Remove(_ context.Context, replica string) error {
	k.io()
	delete(k.s.db.roster, replica)
	k.io()
	return nil
}
