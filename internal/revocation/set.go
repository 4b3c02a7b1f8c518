package revocation

import (
	"bytes"
	"slices"
	"time"
)

// Set is everything that is revoked, exactly, as hashes. It is immutable: With
// and Without return another one, which shares what did not change. The zero
// Set is empty.
//
// It is 256 sorted slices, chosen by a hash's first byte: an entry costs 20
// bytes, adding one copies a 256th of the set, and asking is a binary search.
type Set struct {
	shards [256][]record
	count  int
}

type record struct {
	hash  Hash
	leave uint32 // seconds on CLOCK_BOOTTIME after which nobody can hold what it ends
}

func (r record) compare(hash Hash) int { return bytes.Compare(r.hash[:], hash[:]) }

// Has reports whether something is revoked.
func (s *Set) Has(hash Hash) bool {
	_, found := slices.BinarySearchFunc(s.shards[hash[0]], hash, record.compare)
	return found
}

// Len is the number of entries held.
func (s *Set) Len() int { return s.count }

// With returns the set with further entries, which stay for their life from
// now, a moment on CLOCK_BOOTTIME.
func (s *Set) With(entries []Entry, now time.Duration) *Set {
	next := *s
	var added [256][]record
	for _, e := range entries {
		life := e.Life
		if life <= 0 {
			life = Life(CallMost)
		}
		r := record{e.What().Hash(), uint32((now+life)/time.Second) + 1} // 136 years of uptime
		added[r.hash[0]] = append(added[r.hash[0]], r)
	}
	for i := range added {
		if len(added[i]) > 0 {
			next.shards[i] = merged(s.shards[i], added[i])
			next.count += len(next.shards[i]) - len(s.shards[i])
		}
	}
	return &next
}

// merged is both, sorted; of two records of one hash the one that stays longer.
func merged(old, added []record) []record {
	out := make([]record, 0, len(old)+len(added))
	out = append(append(out, old...), added...)
	slices.SortFunc(out, func(a, b record) int {
		if c := a.compare(b.hash); c != 0 {
			return c
		}
		return int(b.leave) - int(a.leave)
	})
	return slices.Clip(slices.CompactFunc(out, func(a, b record) bool { return a.hash == b.hash }))
}

// Without returns the set without the entries whose time is over at now, a
// moment on CLOCK_BOOTTIME; the same set when there are none.
func (s *Set) Without(now time.Duration) *Set {
	passed := func(r record) bool { return time.Duration(r.leave)*time.Second < now }
	next := *s
	for i, shard := range s.shards {
		if !slices.ContainsFunc(shard, passed) {
			continue
		}
		next.shards[i] = slices.Clip(slices.DeleteFunc(slices.Clone(shard), passed))
		next.count -= len(shard) - len(next.shards[i])
	}
	if next.count == s.count {
		return s
	}
	return &next
}
