// Package revocation is the log of what may no longer be used, and the stream
// on which control carries it to every replica.
//
// Control appends an Entry in the transaction that ends a credential (Hub, in
// this package, carries it out). A replica keeps all entries in a Set, asks it
// on every request, and confirms a seq only after it has cut the streams that
// the entries up to it end.
package revocation

import (
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// How long an entry is kept. What it ends is not resolved any more once it is
// deleted; so an entry may leave when nothing can remember having resolved it.
const (
	// CacheAge is the most that a replica keeps what it resolved.
	CacheAge = 10 * time.Minute
	// CheckAge is the most that may lie between a request's Check and the
	// headers of its answer: the upper bound of a server's call limit.
	CheckAge = time.Hour
	// LeaseMost is the longest lease that can be configured.
	LeaseMost = time.Minute
	// Keep is how long an entry stays in the log after its commit.
	Keep = max(CacheAge, CheckAge) + LeaseMost + time.Minute
)

// Kind is what an entry ends.
type Kind int32

// The kinds of entries. The numbers are stored and sent.
const (
	KindAccessToken Kind = 1 // Key: the token's id
	KindServer      Kind = 2 // Key: the server's id; ends all of its credentials
)

// Entry is one line of the log.
type Entry struct {
	Seq    int64
	Kind   Kind
	Key    string
	Server identity.ServerID
	Until  time.Time // when no replica can hold what it ends any more
}

// Position is how far into which log a reader is.
type Position struct {
	Database string // random id of the database, made once
	Epoch    int64  // raised when a restored database is accepted
	Seq      int64  // newest entry; 0: none yet
}

// Result says how a revocation was carried out.
type Result struct {
	Replicas     int           // listed when the entry was committed
	Confirmed    int           // have cut the streams and apply the entry
	Missing      []string      // the others, by name
	StreamsEnded int64         // live streams that were cut
	Took         time.Duration // from the commit to the last confirmation
}
