package revocation

import "time"

// Instant is one moment on both clocks of a machine.
type Instant struct {
	// Boot runs while the machine sleeps and cannot be set (CLOCK_BOOTTIME).
	Boot time.Duration
	// Wall is the time of day. It can be set, and a machine that was stopped
	// from outside, with its other clocks, finds out from it.
	Wall time.Time
}

// Clock reads both clocks.
type Clock func() Instant

// jumpMost is how far the two clocks may move apart within one lease. Slewing
// moves them by less than a hundredth of it.
const jumpMost = 500 * time.Millisecond

// since is how long ago an earlier moment was, by the clock that says more, and
// whether the two agree: one of them was set, or stood still, when they do not.
func (now Instant) since(then Instant) (elapsed time.Duration, agree bool) {
	boot, wall := now.Boot-then.Boot, now.Wall.Sub(then.Wall)
	return max(boot, wall), (boot - wall).Abs() <= jumpMost
}
