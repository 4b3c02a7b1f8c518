package revocation

import "time"

// Known is what a replica knows to be revoked, in one piece: swapped whole.
type Known struct {
	*Set
	At Position // everything up to here is in the set, or has left it
	// Generation rises when what was remembered before can no longer be judged
	// by the set: it was read from another log, or entries were missed that are
	// not in the log any more. What a cache holds of an earlier generation, or
	// from before it asked, is void.
	Generation uint64
}

// Answers reports whether something that control read at a position can be
// judged by what is known here: an older answer could know a credential that
// an entry ended which has left the set again.
func (k *Known) Answers(read Position) bool { return read.Covers(k.At) }

// Memory is when something was asked for, and under which generation. It is
// taken before asking.
type Memory struct {
	Generation uint64 `json:"g"`
	Asked      int64  `json:"a"` // nanoseconds on CLOCK_BOOTTIME
}

// Remember begins a memory.
func (k *Known) Remember(now Instant) Memory { return Memory{k.Generation, int64(now.Boot)} }

// Holds reports whether a memory may still be used at now. Most is at most as
// long as entries stay in the set.
func (k *Known) Holds(m Memory, now Instant, most time.Duration) bool {
	age := now.Boot - time.Duration(m.Asked)
	return m.Generation == k.Generation && age >= 0 && age <= most
}
