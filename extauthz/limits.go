package extauthz

import (
	"crypto/sha256"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

// limits are the token buckets that policies ask for. They are this replica's
// own: three replicas together let through three times as much.
//
// A bucket belongs to one server, to what the limit is by, and to its rate and
// burst: a policy with another rate begins with a full one. A bucket that is
// full again says nothing and is dropped. One that is not is never dropped:
// where there is no room for another, who needs it waits.
type limits struct {
	shards [limitShards]limitShard
	count  atomic.Int64 // of buckets
}

const (
	limitShards      = 64
	bucketsMost      = 1 << 18 // of all servers
	bucketsPerServer = 1 << 16
	bucketsPerMaker  = 1 << 10 // that one principal made, of one server
	waitMost         = 24 * time.Hour
	sweepAgain       = time.Second
)

type limitShard struct {
	mu      sync.Mutex // guards servers and what is in it
	servers map[identity.ServerID]*serverLimits
}

// serverLimits are the buckets of one server.
type serverLimits struct {
	buckets map[bucketKey]*bucket
	made    map[[16]byte]int // buckets by who made them
	swept   time.Duration    // when there was no room for the last time
}

// bucketKey names a bucket among those of a server. What the limit is not by is
// zero.
type bucketKey struct {
	by              string // the limit's, joined
	principal, tool [16]byte
	rate            float64 // tokens per second
	burst           int
}

// bucket holds tokens as they were at a time, since this machine has started.
type bucket struct {
	tokens float64
	at     time.Duration
	maker  [16]byte
}

// wanted is how many tokens a request takes of one bucket.
type wanted struct {
	bucketKey

	tokens int
}

func (k *bucketKey) level(b *bucket, now time.Duration) float64 {
	return min(float64(k.burst), b.tokens+max(0, now-b.at).Seconds()*k.rate)
}

// want adds a limit that holds for one message to those of the request.
func want(all []wanted, limit policies.Limit, principal [16]byte, tool string) []wanted {
	key := bucketKey{rate: limit.Rate, burst: limit.Burst}
	for _, by := range limit.By {
		key.by += by + " "
		switch by {
		case "principal":
			key.principal = principal
		case "tool":
			digest := sha256.Sum256([]byte(tool))
			key.tool = [16]byte(digest[:16])
		}
	}
	for i := range all {
		if all[i].bucketKey == key {
			all[i].tokens++
			return all
		}
	}
	return append(all, wanted{key, 1})
}

// take takes all that a request wants, or nothing and says how long to wait.
func (l *limits) take(server identity.ServerID, maker [16]byte, all []wanted, now time.Duration) (wait time.Duration) {
	shard := &l.shards[server[len(server)-1]%limitShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	of, missing := shard.of(server), 0
	for i := range all {
		level := float64(all[i].burst)
		if b := of.buckets[all[i].bucketKey]; b != nil {
			level = all[i].level(b, now)
		} else {
			missing++
		}
		wait = max(wait, all[i].after(level))
	}
	if wait > 0 {
		return wait
	}
	if missing > 0 && !l.room(of, maker, missing, now) {
		return sweepAgain
	}
	for i := range all {
		l.spend(of, &all[i], maker, now)
	}
	return 0
}

// of is the buckets of a server. limitShard.mu is held.
func (s *limitShard) of(server identity.ServerID) *serverLimits {
	if s.servers == nil {
		s.servers = map[identity.ServerID]*serverLimits{}
	}
	of := s.servers[server]
	if of == nil {
		of = &serverLimits{buckets: map[bucketKey]*bucket{}, made: map[[16]byte]int{}, swept: -sweepAgain}
		s.servers[server] = of
	}
	return of
}

// after is how long it takes until there is enough in a bucket.
func (w *wanted) after(level float64) time.Duration {
	if level >= float64(w.tokens) {
		return 0
	}
	seconds := math.Ceil((float64(w.tokens) - level) / w.rate)
	return time.Duration(min(seconds, waitMost.Seconds())) * time.Second
}

func (l *limits) spend(of *serverLimits, w *wanted, maker [16]byte, now time.Duration) {
	b := of.buckets[w.bucketKey]
	if b == nil {
		b = &bucket{tokens: float64(w.burst), at: now, maker: maker}
		of.buckets[w.bucketKey] = b
		of.made[maker]++
		l.count.Add(1)
	}
	b.tokens, b.at = w.level(b, now)-float64(w.tokens), max(now, b.at)
}

// room makes room for n buckets, if there is any.
func (l *limits) room(of *serverLimits, maker [16]byte, n int, now time.Duration) bool {
	fits := func() bool {
		return len(of.buckets)+n <= bucketsPerServer && of.made[maker]+n <= bucketsPerMaker && l.count.Load()+int64(n) <= bucketsMost
	}
	if fits() {
		return true
	}
	if now-of.swept < sweepAgain { // it takes a while
		return false
	}
	of.swept = now
	l.sweep(of, now)
	return fits()
}

// sweep drops the buckets that are full.
func (l *limits) sweep(of *serverLimits, now time.Duration) {
	for key, b := range of.buckets {
		if key.level(b, now) < float64(key.burst) {
			continue
		}
		delete(of.buckets, key)
		l.count.Add(-1)
		if of.made[b.maker]--; of.made[b.maker] == 0 {
			delete(of.made, b.maker)
		}
	}
}

// tidy drops what is full everywhere.
func (l *limits) tidy(now time.Duration) {
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		for id, of := range shard.servers {
			if l.sweep(of, now); len(of.buckets) == 0 {
				delete(shard.servers, id)
			}
		}
		shard.mu.Unlock()
	}
}
