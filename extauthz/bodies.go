package extauthz

import "sync/atomic"

// bodiesMost is how many bytes of requests may wait for a decision: of bodies,
// by far.
const bodiesMost = 256 << 20

// bodies counts the bytes of requests that wait for a decision.
type bodies struct{ held atomic.Int64 }

// take counts n bytes until release, or refuses.
func (b *bodies) take(n int) bool {
	if b.held.Add(int64(n)) > bodiesMost {
		b.release(n)
		return false
	}
	return true
}

func (b *bodies) release(n int) { b.held.Add(-int64(n)) }
