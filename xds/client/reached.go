package client

import (
	"maps"
	"slices"
)

// reached is how far one stream has brought a replica. What it runs is as old as
// the oldest of its types, and what it refused it does not run.
type reached struct {
	types   int              // that have to start
	started map[string]int64 // revision by type
	refused map[[2]string]bool
	lost    bool // something came that could not be read: what it was is not known
}

func newReached(types int) *reached {
	return &reached{types: types, started: map[string]int64{}, refused: map[[2]string]bool{}}
}

// with notes that a type is sent up to a revision, with this update, and
// returns what the replica runs if it takes it. A type's start is about itself;
// what follows is about every type that has started.
func (r *reached) with(u Update, revision int64) int64 {
	if r.started[u.Type] == 0 {
		r.started[u.Type] = revision
	} else {
		for typeURL := range r.started {
			r.started[typeURL] = revision
		}
	}
	if len(r.started) < r.types || r.lost {
		return 0
	}
	again := map[[2]string]bool{}
	for _, name := range namesOf(u) {
		again[name] = true
	}
	for name := range r.refused {
		if !again[name] {
			return 0
		}
	}
	return slices.Min(slices.Collect(maps.Values(r.started)))
}

// note says what became of an update.
func (r *reached) note(u Update, refused bool) {
	for _, name := range namesOf(u) {
		if refused {
			r.refused[name] = true
		} else {
			delete(r.refused, name)
		}
	}
}

func namesOf(u Update) [][2]string {
	names := make([][2]string, 0, len(u.Changed)+len(u.Removed))
	for _, resource := range u.Changed {
		names = append(names, [2]string{u.Type, resource.Name})
	}
	for _, name := range u.Removed {
		names = append(names, [2]string{u.Type, name})
	}
	return names
}
