package extauthz

import "sync/atomic"

// bodiesMost is how many bytes of request bodies may wait for a decision.
const bodiesMost = 256 << 20

// bodies counts the bytes of request bodies that wait for a decision.
type bodies struct{ held atomic.Int64 }

// take counts n bytes until release, or refuses.
func (b *bodies) take(n int) (release func(), ok bool) {
	if b.held.Add(int64(n)) > bodiesMost {
		b.held.Add(-int64(n))
		return nil, false
	}
	return func() { b.held.Add(-int64(n)) }, true
}
