package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// readConnections is how many reads run at a time.
const readConnections = 4

func open(ctx context.Context, c Config) (*Store, error) {
	aead, err := newAEAD(c.Key)
	if err != nil {
		return nil, err
	}
	if err := prepareFile(c.Path); err != nil {
		return nil, fault{err}
	}
	s := &Store{
		now:         c.Now,
		aead:        aead,
		keepChanges: cmp.Or(c.KeepChanges, defaultKeepChanges),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.connect(c.Path); err != nil {
		return nil, fault{err}
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepareFile makes sure that nobody but the owner reads the file. SQLite
// gives the files beside it (-wal, -shm) the same mode.
func prepareFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return file.Chmod(0o600)
	}
	return nil
}

func (s *Store) connect(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	file := "file:" + (&url.URL{Path: absolute}).EscapedPath()
	// synchronous(FULL): a commit is on the disk before it is acknowledged.
	writes := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
	}}
	reads := url.Values{"_pragma": {"busy_timeout(5000)", "query_only(1)"}}
	if s.writer, err = sql.Open("sqlite", file+"?"+writes.Encode()); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	if s.readers, err = sql.Open("sqlite", file+"?"+reads.Encode()); err != nil {
		return errors.Join(err, s.writer.Close())
	}
	s.readers.SetMaxOpenConns(readConnections)
	s.readers.SetMaxIdleConns(readConnections)
	return nil
}

// prepare makes what was connected to usable, or refuses it.
func (s *Store) prepare(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return s.start(ctx)
}

// migrate brings the tables to this program's version, and refuses a database
// that is beyond it.
func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.writer, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fault{err}
	}
	has, knows, err := provider.GetVersions(ctx)
	if err != nil {
		return fault{err}
	}
	if has > knows {
		return fmt.Errorf("%w: its version is %d, this program knows up to %d", ErrNewer, has, knows)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fault{err}
	}
	return nil
}

// start gives a new database its identity, and compares the key of an old one.
func (s *Store) start(ctx context.Context) error {
	check, err := s.keyCheck(ctx)
	if errors.Is(err, ErrNotFound) {
		if err = s.found(ctx); err == nil {
			check, err = s.keyCheck(ctx)
		}
	}
	if err != nil {
		return err
	}
	if _, err := s.unseal(check, keyCheckPlace); err != nil {
		return ErrKey
	}
	return nil
}

var keyCheckPlace = place{"meta", "key_check", "1"}

func (s *Store) keyCheck(ctx context.Context) (check string, err error) {
	err = s.read(ctx).row(`SELECT key_check FROM meta WHERE id = 1`)(&check)
	return check, err
}

// found writes the row that makes a database; another process may be first.
func (s *Store) found(ctx context.Context) error {
	return s.transact(ctx, s.writer, nil, func(tx conn) error {
		_, err := tx.exec(`
			INSERT INTO meta (id, database_id, epoch, revision, seq, dropped_seq, key_check, checked_at)
			VALUES (1, $1, 1, 0, 0, 0, $2, $3)
			ON CONFLICT (id) DO NOTHING`,
			rand.Text(), s.seal(nil, keyCheckPlace), micros(s.now()))
		return err
	})
}
