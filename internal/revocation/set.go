package revocation

import (
	"maps"
	"time"
)

// Key names one thing that can be ended.
type Key struct {
	Kind Kind
	Key  string
}

// Set is everything that is revoked, exactly, at one seq. It is immutable:
// With returns another one. The zero Set is empty.
//
// New entries go to a small map that is copied; when it has grown past an
// eighth of the large one the two become one. So an entry copies at most an
// eighth of the set, and reading costs two lookups at most.
type Set struct {
	large map[Key]time.Time // entry -> until
	small map[Key]time.Time
	seq   int64
}

const smallSet = 256

// Full returns the set of exactly these entries, at seq.
func Full(entries []Entry, seq int64) *Set {
	s := &Set{large: make(map[Key]time.Time, len(entries)), seq: seq}
	for _, e := range entries {
		s.large[Key{e.Kind, e.Key}] = e.Until
	}
	return s
}

// With returns the set with further entries, at seq, without those whose time
// had passed at now.
func (s *Set) With(entries []Entry, seq int64, now time.Time) *Set {
	next := &Set{large: s.large, small: maps.Clone(s.small), seq: seq}
	if next.small == nil {
		next.small = make(map[Key]time.Time, len(entries))
	}
	for _, e := range entries {
		next.small[Key{e.Kind, e.Key}] = e.Until
	}
	if len(next.small) > max(smallSet, len(next.large)/8) {
		next.merge(now)
	}
	return next
}

func (s *Set) merge(now time.Time) {
	merged := make(map[Key]time.Time, len(s.large)+len(s.small))
	for _, part := range []map[Key]time.Time{s.large, s.small} {
		for key, until := range part {
			if now.Before(until) {
				merged[key] = until
			}
		}
	}
	s.large, s.small = merged, nil
}

// Has reports whether key is revoked.
func (s *Set) Has(key Key) bool {
	if _, found := s.small[key]; found {
		return true
	}
	_, found := s.large[key]
	return found
}

// Seq is the newest entry that the set has seen.
func (s *Set) Seq() int64 { return s.seq }

// Len is the number of entries held.
func (s *Set) Len() int { return len(s.large) + len(s.small) }
