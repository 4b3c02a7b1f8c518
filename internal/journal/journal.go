// Package journal is what control remembers of its database outside of it: how
// far it has come, and what was ended on the way. So a database that was put
// back to an older state, a backup of last night or a stale copy, is noticed
// before anything is decided by it: tokens that were deleted since would be
// valid again.
//
// It is a step of the admin flow: control follows the store's revocation log
// into the journal before it answers a delete. A journal is one file per
// database in the data directory, and survives what a commit survives.
//
// Who can write the file can hide that a database was restored, or stop
// control; who can read it learns ids of tokens and servers, and no secret.
package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// Log is the database that is followed; *store.Store is one.
type Log interface {
	Reached(ctx context.Context) (store.Reached, error)
	RevocationsSince(ctx context.Context, seq int64, limit int) ([]revocation.Entry, error)
}

// keepEntries is how many entries are kept at least: the file is written anew
// when it has twice as many lines.
const keepEntries = 100_000

// Journal is the open journal of one database. Its methods may be called from
// any goroutine; a second process must not open it.
type Journal struct {
	path     string
	database string
	keep     int

	// mu guards the rest.
	mu   sync.Mutex
	file *os.File
	size int64 // bytes of whole lines that the disk has
	torn bool  // there may be more bytes, of a write that failed
	count
}

// Open opens the journal that the data directory dir has of a database, or
// begins an empty one. A last line that was cut off, by a kill or a loss of
// power, was never acknowledged and goes; whatever else is not a journal's
// line is an error that names it.
func Open(dir, database string) (*Journal, error) {
	if database == "" || strings.Trim(database, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return nil, fmt.Errorf("opening the journal: %q is not the id of a database", database)
	}
	j := &Journal{path: filepath.Join(dir, "ended-"+database+".jsonl"), database: database, keep: keepEntries}
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return j, nil
}

// Close closes the file. No other method may be running.
func (j *Journal) Close() error { return j.file.Close() }

// Seen is how far the database ever was, as far as was noted; zero when
// nothing was noted yet.
func (j *Journal) Seen() store.Reached {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen
}

// Book is a database that remembers that it has a journal; *store.Store is one.
type Book interface {
	Log
	Journaled(ctx context.Context) (bool, error)
	NoteJournal(ctx context.Context) error
}

// Begin follows the database for the first time after Open, before anything is
// decided by it. A database that had a journal and comes without it, to
// another machine for one, may be an older state: that is a *MissingError.
func (j *Journal) Begin(ctx context.Context, book Book) error {
	journaled, err := book.Journaled(ctx)
	if err != nil {
		return err
	}
	if journaled && j.Seen() == (store.Reached{}) {
		return &MissingError{Path: j.path}
	}
	if err := j.Follow(ctx, book); err != nil || journaled {
		return err
	}
	return book.NoteJournal(ctx)
}

// Follow notes how far the database is and what was ended since the last time.
// When it returns nil the disk has everything that was committed before the
// call. A *RestoredError says that the database is behind the journal; then
// nothing is noted.
func (j *Journal) Follow(ctx context.Context, log Log) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.follow(ctx, log); err != nil {
		return fmt.Errorf("following the database into %s: %w", j.path, err)
	}
	return nil
}

var errAnother = errors.New("the database is another one than the journal's")

func (j *Journal) follow(ctx context.Context, log Log) error {
	now, err := log.Reached(ctx)
	if err != nil {
		return err
	}
	if now.Database != j.database {
		return errAnother
	}
	if err := Restored(j.seen, now); err != nil {
		return err
	}
	for j.seen.Seq < now.Seq {
		entries, err := log.RevocationsSince(ctx, j.seen.Seq, 0)
		if err != nil {
			return err
		}
		lines := linesOf(entries, now)
		if len(lines) == 0 {
			break // the rest is no longer kept: a gap
		}
		if err := j.append(lines); err != nil {
			return err
		}
	}
	if j.seen != now {
		if err := j.append([]line{positionLine(now)}); err != nil {
			return err
		}
	}
	if j.lines > 2*j.keep {
		return j.compact()
	}
	return nil
}

// linesOf are the lines of the entries up to now. Later ones wait: how far the
// database was with them is not known yet.
func linesOf(entries []revocation.Entry, now store.Reached) []line {
	var lines []line
	for _, e := range entries {
		if e.Seq > now.Seq {
			break
		}
		l := positionLine(now)
		l.Seq, l.Kind, l.Key, l.Server = e.Seq, e.Kind, e.Key, e.Server.String()
		lines = append(lines, l)
	}
	return lines
}

// Missing lists what the journal knows to have been ended, in order, and the
// database, as far as it is now, does not: each credential once. It is
// complete when nothing else can have been.
func (j *Journal) Missing(now store.Reached) (list []revocation.Entry, complete bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at, place := placeOf(now), map[revocation.Key]int{}
	_, err = scan(j.file, j.size, func(l line) error {
		if l.Kind == 0 || !l.place().after(at) {
			return nil
		}
		e, err := l.entry()
		if err != nil {
			return err
		}
		key := revocation.Key{Kind: e.Kind, Key: e.Key}
		if _, found := place[key]; !found {
			place[key] = len(list)
			list = append(list, e)
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("reading %s: %w", j.path, err)
	}
	return list, now.Database == j.seen.Database && !j.from.after(at), nil
}
