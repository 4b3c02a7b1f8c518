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

// How long an entry stays in the log. What it ends is not resolved any more
// once it is deleted; so an entry may leave when no replica can hold it any
// longer, neither as something resolved nor as a call under way. Both start
// with a Check, which may itself have begun under a lease that was about to
// end, on a clock that is a little off.
const (
	CacheAge   = 10 * time.Minute // a replica resolves anew after it
	LeaseMost  = time.Minute      // the longest lease that can be configured
	checkMost  = time.Minute      // the longest Check
	clockSlack = 3 * time.Minute
)

// Life is how long an entry stays for a server with this call limit.
func Life(callLimit time.Duration) time.Duration {
	return max(CacheAge, callLimit) + LeaseMost + checkMost + clockSlack
}

// AnswerAge is the most that may lie between a request's Check and the headers
// of its answer: less than Life, so that what could refuse it is still known.
func AnswerAge(callLimit time.Duration) time.Duration { return callLimit + checkMost }

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
