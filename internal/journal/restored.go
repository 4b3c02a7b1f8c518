package journal

import (
	"fmt"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// RestoredError says that a database was put back to an older state.
type RestoredError struct {
	Seen store.Reached // how far it was
	Now  store.Reached // how far it is
}

// Error names both positions and the way out.
func (e *RestoredError) Error() string {
	return fmt.Sprintf("the database was put back to an older state: it is at %s, and has been at %s; "+
		"what was deleted in between would be valid again. Nothing is served from it before `arbiter store accept-restore`",
		Describe(e.Now), Describe(e.Seen))
}

// MissingError says that a database had a journal, and that it is not there.
type MissingError struct{ Path string }

// Error names the file and the way out.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is missing: without it nobody can tell whether the database is an older state, in which "+
		"deleted tokens are valid again. Put it back, or say what becomes of them with `arbiter store accept-restore --end=all` (or none)", e.Path)
}

// Describe says how far a database is, to a person.
func Describe(at store.Reached) string {
	return fmt.Sprintf("epoch %d, seq %d, revision %d", at.Epoch, at.Seq, at.Revision)
}

// Restored reports, as a *RestoredError, that a database is behind what was
// seen of it, in any of its numbers. Another database is not an older one, and
// neither is one of which nothing was seen.
func Restored(seen, now store.Reached) error {
	if seen.Database != now.Database {
		return nil
	}
	if now.Epoch < seen.Epoch || now.Seq < seen.Seq || now.Revision < seen.Revision {
		return &RestoredError{Seen: seen, Now: now}
	}
	return nil
}
