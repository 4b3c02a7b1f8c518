package revocation

import (
	"sync"
	"sync/atomic"
	"time"
)

// lease is a replica's right to accept, until a moment on its own clocks.
type lease struct {
	begun  Instant       // before the ping that asked for it was sent
	length time.Duration // control's lease less Margin

	// over stays set: a lease that a clock's jump has ended does not come back
	// to life when the clock jumps back.
	over atomic.Bool
	lost sync.Once // its streams are cut once
}

// held reports whether the lease holds at now: neither clock says that it is
// over, and they agree.
func (l *lease) held(now Instant) bool {
	if l == nil || l.over.Load() {
		return false
	}
	elapsed, agree := now.since(l.begun)
	if !agree || elapsed >= l.length || now.Wall.IsZero() {
		l.over.Store(true)
		return false
	}
	return true
}
