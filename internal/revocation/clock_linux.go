package revocation

import (
	"time"

	"golang.org/x/sys/unix"
)

// SystemClock reads this machine's clocks.
func SystemClock() Instant {
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		// There is no lease without a clock: an instant that agrees with none.
		return Instant{}
	}
	return Instant{Boot: time.Duration(boot.Nano()), Wall: time.Now().Round(0)}
}
