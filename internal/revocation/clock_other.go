//go:build !linux

package revocation

import "time"

// started is where CLOCK_BOOTTIME begins on systems that have none. The clock
// of Go's runtime stands in for it; it may stand still while the machine
// sleeps, and the wall clock, which then disagrees, ends the lease.
var started = time.Now()

// SystemClock reads this machine's clocks.
func SystemClock() Instant {
	return Instant{Boot: time.Since(started), Wall: time.Now().Round(0)}
}
