// Package store is where control keeps what must survive it: servers, access
// tokens, keys, the policy, the revocation log, who may hold a lease, and the
// newest decision records.
//
// It is a step of the admin flow: control changes it, one transaction at a
// time, and everybody else hears of it by number.
//
//   - A revision is one change of what is pushed to Envoy and every extauthz:
//     a server, the keys or the policy. Its transaction raises meta.revision and writes
//     the row of changes that says what to read again.
//   - A seq is one entry of the revocation log. The transaction that removes a
//     credential raises meta.seq and writes the entry.
//   - Making an access token, noting its use, listing a replica and keeping
//     decision records take neither: a token is resolved by its digest when it
//     is first seen.
//
// Both numbers come from one row that stays locked until the transaction ends:
// their order is the order of commits, without gaps, and nobody sees a number
// before what it stands for; AcceptRestore alone leaves some out. What a
// method acknowledged survives a kill and a loss of power.
//
// The store trusts its caller to have checked what it stores, and whoever can
// write the database file: that is enough to grant anything. Who can only read
// it learns names and addresses, but neither tokens (SHA-256 only) nor upstream
// headers and keys (sealed under Config.Key, which is not in the database).
package store

import (
	"context"
	"crypto/cipher"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// What a method can answer besides success. Test with errors.Is.
var (
	ErrNotFound  = errors.New("not found")
	ErrNameTaken = errors.New("another server has this name")
	ErrIDTaken   = errors.New("this id is in use, or was until a moment ago")
	ErrCursor    = errors.New("not a cursor of this list")

	// ErrGap: the changes asked for are no longer kept, or were never made
	// (the database is an older one now). Read everything again.
	ErrGap = errors.New("the changes since then are not known")

	// ErrUnavailable: the database could not be read or written. The text of
	// an error of a method that writes says what became of the change.
	ErrUnavailable = errors.New("the database cannot be used")
	// ErrUncertain comes with ErrUnavailable when a commit was written but the
	// disk did not confirm it.
	ErrUncertain = errors.New("whether it was stored is not known")

	// ErrNewer and ErrKey are for Open: the database belongs to a newer
	// program, or its secrets to another key.
	ErrNewer = errors.New("the database is newer than this program")
	ErrKey   = errors.New("the key is not the one of this database")
)

// Config says which database to open.
type Config struct {
	// Path of the SQLite file, made with mode 0600 when there is none. Its
	// directory must exist.
	Path string
	// Key seals what is secret and must come back. It must not be zero.
	Key [32]byte
	// Now is the clock; default time.Now.
	Now func() time.Time
	// KeepChanges is how many rows of changes are kept; default 100,000.
	KeepChanges int64
}

// String hides the key.
func (c Config) String() string { return "store at " + c.Path }

// GoString hides the key, for %#v.
func (c Config) GoString() string { return c.String() }

// LogValue hides the key.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

const defaultKeepChanges = 100_000

// Store is an open database. Its methods may be called from any goroutine.
type Store struct {
	now         func() time.Time
	aead        cipher.AEAD
	keepChanges int64
	writer      *sql.DB // one connection: writes queue here instead of failing as busy
	readers     *sql.DB

	// mu guards the channels that Changed gave out.
	mu          sync.Mutex
	subscribers []chan struct{}
}

// Open opens the database, brings its tables up to date and checks the key.
// Nothing has been changed when it says ErrNewer or ErrKey.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := open(ctx, c)
	if err != nil {
		return nil, failed("opening "+c.Path, err)
	}
	return s, nil
}

// Close ends what is open. No other method may be running.
func (s *Store) Close() error { return errors.Join(s.readers.Close(), s.writer.Close()) }

// Check reports whether the database can be read and written, by doing both.
func (s *Store) Check(ctx context.Context) error {
	return s.write(ctx, "checking the database", func(tx conn) error {
		_, err := tx.exec(`UPDATE meta SET checked_at = $1 WHERE id = 1`, micros(s.now()))
		return err
	})
}

// Changed returns a channel that receives whenever this Store committed a
// revision or a seq. It says only that something changed: the receiver reads
// Revision and Position. Several changes can be one notice, none is lost; the
// first is there at once, for what happened before the call.
//
// Every call makes another channel, for the life of the Store: take one per
// reader, not one per wait. Another process's changes are not seen, so a
// reader polls besides.
func (s *Store) Changed() <-chan struct{} {
	notice := make(chan struct{}, 1)
	notice <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers = append(s.subscribers, notice)
	return notice
}

func (s *Store) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, notice := range s.subscribers {
		select {
		case notice <- struct{}{}:
		default: // one is waiting to be read already
		}
	}
}
