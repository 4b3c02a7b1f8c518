package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// Reached is how far a database has come. Who has seen it further than it is
// now knows that an older state of it was put back.
type Reached struct {
	revocation.Position
	Revision int64
}

// Reached says how far the database is, by one look at it.
func (s *Store) Reached(ctx context.Context) (Reached, error) {
	var at Reached
	err := s.read(ctx).row(`SELECT database_id, epoch, seq, revision FROM meta WHERE id = 1`)(
		&at.Database, &at.Epoch, &at.Seq, &at.Revision)
	if err != nil {
		return Reached{}, failed("reading how far the database is", err)
	}
	return at, nil
}

// Journaled reports whether NoteJournal was called for this database.
func (s *Store) Journaled(ctx context.Context) (bool, error) {
	var begun int64
	if err := s.read(ctx).row(`SELECT journaled FROM meta WHERE id = 1`)(&begun); err != nil {
		return false, failed("reading whether there is a journal", err)
	}
	return begun == 1, nil
}

// NoteJournal keeps that a journal of this database was begun, outside of it.
func (s *Store) NoteJournal(ctx context.Context) error {
	return s.write(ctx, "noting the journal", func(tx conn) error {
		_, err := tx.exec(`UPDATE meta SET journaled = 1 WHERE id = 1`)
		return err
	})
}

// Restore says what becomes of a database that was put back to an older state.
type Restore struct {
	Seen Reached            // how far it once was, as far as is known
	End  []revocation.Entry // what was ended since; Seq and Until are not read
	All  bool               // ends every access token besides
}

// Ended says what AcceptRestore ended, of what was in the database.
type Ended struct {
	Tokens  int64 // access tokens, those of the servers included
	Servers int64
	Now     Reached // how far the database is after it
}

// restoreStride is how much further than Restore.Seen the revision goes on:
// whoever noted Seen may have missed the last revisions before the database
// was lost, and a replica may have cached something under one of them.
const restoreStride = 1000

// errOtherDatabase: numbers of two databases cannot be compared.
var errOtherDatabase = errors.New("what was seen belongs to another database")

// AcceptRestore makes a database usable that was put back to an older state,
// in one transaction. Its epoch is a new one, so that every replica loads the
// revocation log anew; seq and revision go on beyond whatever was used, so
// that no number comes twice; and no change is known any more, so that
// ChangesSince says ErrGap to whoever followed what was lost.
//
// Each of Restore.End gets its entry in the log once more, also when the
// database does not hold it: a replica may.
func (s *Store) AcceptRestore(ctx context.Context, r Restore) (Ended, error) {
	var out Ended
	err := s.write(ctx, "accepting a restored database", func(tx conn) (err error) {
		if out.Now, err = s.startEpoch(tx, r.Seen); err != nil {
			return err
		}
		for _, e := range r.End {
			if err := s.endAgain(tx, e, &out); err != nil {
				return err
			}
		}
		if r.All {
			if err := s.endTokens(tx, &out); err != nil {
				return err
			}
		}
		_, err = tx.exec(`UPDATE meta SET seq = $1 WHERE id = 1`, out.Now.Seq)
		return err
	})
	if err != nil {
		return Ended{}, err
	}
	s.announce()
	return out, nil
}

// startEpoch moves the database beyond what was seen of it.
func (s *Store) startEpoch(tx conn, seen Reached) (Reached, error) {
	now := Reached{}
	err := tx.row(`UPDATE meta SET epoch = epoch + 1 WHERE id = 1 RETURNING database_id, epoch, seq, revision`)(
		&now.Database, &now.Epoch, &now.Seq, &now.Revision)
	if err != nil {
		return now, err
	}
	if now.Database != seen.Database {
		return now, errOtherDatabase
	}
	now.Epoch = max(now.Epoch, seen.Epoch+1)
	now.Seq = max(now.Seq, seen.Seq)
	now.Revision = max(now.Revision, seen.Revision) + restoreStride
	// Entries up to here may be missing, as if they had been dropped.
	_, err = tx.exec(`UPDATE meta SET epoch = $1, revision = $2, dropped_seq = $3 WHERE id = 1`,
		now.Epoch, now.Revision, now.Seq)
	if err != nil {
		return now, err
	}
	if _, err := tx.exec(`DELETE FROM changes`); err != nil {
		return now, err
	}
	// Replicas that were listed after the copy was made are not in it.
	return now, listReplica(tx, Replica{Name: "replicas of the lost time", Lease: revocation.LeaseMost, JoinedAt: s.now()})
}

// endAgain deletes what an entry ends, and appends the entry anew.
func (s *Store) endAgain(tx conn, e revocation.Entry, out *Ended) error {
	limit, err := callLimitOf(tx, e)
	if err != nil {
		return err
	}
	switch e.Kind {
	case revocation.KindAccessToken:
		n, err := tx.exec(`DELETE FROM access_tokens WHERE id = $1`, e.Key)
		if err != nil {
			return err
		}
		out.Tokens += n
	case revocation.KindServer:
		if err := endServer(tx, e.Key, out); err != nil {
			return err
		}
	default:
		return fmt.Errorf("entry %d has the unknown kind %d", e.Seq, e.Kind)
	}
	out.Now.Seq++
	e.Seq = out.Now.Seq
	s.begin(&e, limit)
	return appendEntry(tx, e)
}

// endServer deletes a server and its tokens.
func endServer(tx conn, id string, out *Ended) error {
	var tokens int64
	if err := tx.row(`SELECT COUNT(*) FROM access_tokens WHERE server_id = $1`, id)(&tokens); err != nil {
		return err
	}
	n, err := tx.exec(`DELETE FROM servers WHERE id = $1`, id)
	if err != nil {
		return err
	}
	out.Servers += n
	out.Tokens += tokens
	return nil
}

func callLimitOf(tx conn, e revocation.Entry) (time.Duration, error) {
	var limit int64
	err := tx.row(`SELECT call_limit FROM servers WHERE id = $1`, e.Server.String())(&limit)
	if errors.Is(err, ErrNotFound) {
		return revocation.CallMost, nil // the server is not known
	}
	return time.Duration(limit) * time.Microsecond, err
}

// endTokens deletes every access token, with an entry for each.
func (s *Store) endTokens(tx conn, out *Ended) error {
	beyond := revocation.Life(revocation.CacheAge) - revocation.CacheAge // as in Life: added to the longer of the two
	n, err := tx.exec(`INSERT INTO revocations (seq, kind, key, server_id, until_time, life)
		SELECT $1 + ROW_NUMBER() OVER (ORDER BY t.created_at, t.id), $2, t.id, t.server_id,
			$3 + $5 + CASE WHEN s.call_limit > $4 THEN s.call_limit ELSE $4 END,
			$5 + CASE WHEN s.call_limit > $4 THEN s.call_limit ELSE $4 END
		FROM access_tokens t JOIN servers s ON s.id = t.server_id`,
		out.Now.Seq, int64(revocation.KindAccessToken),
		micros(s.now()), revocation.CacheAge.Microseconds(), beyond.Microseconds())
	if err != nil {
		return err
	}
	if _, err := tx.exec(`DELETE FROM access_tokens`); err != nil {
		return err
	}
	out.Tokens += n
	out.Now.Seq += n
	return nil
}
