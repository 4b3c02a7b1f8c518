// Package revocation is how Arbiter keeps its promise that what has been ended
// is ended everywhere when the answer says so (docs/architecture.md,
// "Revocation").
//
// Control appends an Entry in the transaction that ends a credential. Each
// replica follows that log on a stream (Follower), control's end of which is
// the Hub. The invariant, for every replica and at every moment:
//
//	When control has answered that an entry is carried out, no replica accepts
//	a request that the entry ends, and no stream of it lives.
//
// It rests on four orders, each written down where it is kept:
//
//  1. A replica puts an entry into its set, then cuts the streams that it
//     ends, and only then confirms its seq (Follower.apply).
//  2. A replica accepts only under a lease, and a lease is counted from before
//     the ping that asked for it was sent; control counts from after it came.
//     So control's count ends later, and it waits that long for who does not
//     confirm (Follower.ping, Follower.renew; link.heard).
//  3. A lease is given only by an answer whose newest seq, read after the ping
//     came, is applied; and only to a replica that was listed, durably, before
//     (link.pong, Hub.join). So whoever is not listed after a commit has not
//     accepted anything since without knowing it.
//  4. What a replica remembers of an earlier log, or from before a gap in it,
//     it forgets: the Generation rises, its caches and live streams end
//     (Follower.apply).
package revocation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
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
	LeaseLeast = 5 * time.Second  // the shortest lease that can be configured
	LeaseMost  = time.Minute      // the longest
	checkMost  = time.Minute      // the longest Check
	clockSlack = 3 * time.Minute

	// CallMost is the longest call limit that a server can have.
	CallMost = 24 * time.Hour
)

// Life is how long an entry stays for a server with this call limit.
func Life(callLimit time.Duration) time.Duration {
	return max(CacheAge, callLimit) + LeaseMost + checkMost + clockSlack
}

// AnswerAge is the most that may lie between a request's Check and the headers
// of its answer: less than Life, so that what could refuse it is still known.
func AnswerAge(callLimit time.Duration) time.Duration { return callLimit + checkMost }

// Keepalive is how Envoy asks whether its extauthz still runs: the interval of
// its pings and how long it waits for an answer. One that is frozen loses its
// live streams within their sum, which is less than a third of the lease.
func Keepalive(lease time.Duration) (interval, timeout time.Duration) {
	return min(lease/5, 2*time.Second), min(lease/10, time.Second)
}

// Margin is how long before its lease is over a replica gives it up: as long
// as Envoy takes to find that it is frozen. So its streams have ended when
// control stops waiting for it, whatever it was doing when its lease ran out.
func Margin(lease time.Duration) time.Duration {
	interval, timeout := Keepalive(lease)
	return interval + timeout + lease/50
}

// Kind is what an entry ends.
type Kind int32

// The kinds of entries. The numbers are stored and sent.
const (
	KindAccessToken Kind = 1 // Key: the token's id
	KindServer      Kind = 2 // Key: the server's id; ends all of its credentials
	KindPolicy      Kind = 3 // Key: "policy"; of no entry: whose streams a change of policy ended
)

// Key names one thing that can be ended.
type Key struct {
	Kind Kind
	Key  string
}

// Hash stands for a Key where it is looked up: the first 16 bytes of SHA-256
// over kind and key, so that two keys never share one.
type Hash [16]byte

// Hash is computed once, when what the key names becomes known.
func (k Key) Hash() Hash {
	text := binary.BigEndian.AppendUint32(make([]byte, 0, 64), uint32(k.Kind))
	sum := sha256.Sum256(append(text, k.Key...))
	return Hash(sum[:16])
}

// Entry is one line of the log.
type Entry struct {
	Seq    int64
	Kind   Kind
	Key    string
	Server identity.ServerID
	Until  time.Time     // when it leaves the log
	Life   time.Duration // how long a replica keeps it; 0: Life(CallMost)
}

// What names what the entry ends.
func (e Entry) What() Key { return Key{e.Kind, e.Key} }

// Position is how far into which log a reader is.
type Position struct {
	Database string `json:"database"` // random id of the database, made once
	Epoch    int64  `json:"epoch"`    // raised when a restored database is accepted
	Seq      int64  `json:"seq"`      // newest entry; 0: none yet
}

// SameLog reports whether two positions can be compared by Seq.
func (p Position) SameLog(q Position) bool { return p.Database == q.Database && p.Epoch == q.Epoch }

// Behind reports whether p is an earlier state of q's database: one that was
// restored from a copy, or a standby that was promoted too early.
func (p Position) Behind(q Position) bool {
	return p.Database == q.Database && (p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Seq < q.Seq)
}

// Covers reports whether what was read at p knows everything up to q.
func (p Position) Covers(q Position) bool { return p.SameLog(q) && p.Seq >= q.Seq }

// Change is what control waits for: an entry, or a revision of the settings that
// takes a right away. With both, what the entry ends is refused by the entry
// alone; the settings are waited for as long as it is, to count all streams.
type Change struct {
	Seq      int64 // 0: no entry
	Revision int64 // 0: the settings are the same
	What     Key   // whose live streams it ends

	Asked time.Time // Took counts from here, before the commit; zero: from the wait's begin
}

// Result says how a change was carried out.
type Result struct {
	Replicas     int           // listed when it was committed
	Confirmed    int           // have cut the streams and apply it
	Missing      []string      // the others, by name: their leases are over, they accept nothing
	Refused      []Refusal     // and those that did not take the settings, by name: see RefusedError
	StreamsEnded int64         // live streams that were cut
	Took         time.Duration // from Change.Asked to the last confirmation
}

// Refusal is a replica that did not take the settings, and why.
type Refusal struct {
	Replica string
	Reason  string
}

// RefusedError says that replicas do not take the settings that a change is
// about. Each goes on with those that it had until its lease is over, which is
// not renewed; all others have confirmed, or accept nothing.
type RefusedError struct{ Refused []Refusal }

func (e *RefusedError) Error() string {
	texts := make([]string, len(e.Refused))
	for i, r := range e.Refused {
		texts[i] = fmt.Sprintf("replica %s refused the settings: %s", r.Replica, r.Reason)
	}
	return strings.Join(texts, "; ")
}
