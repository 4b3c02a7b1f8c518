package store

import "context"

// The kinds of changes.
const (
	ChangeServer = "server" // Key: the server's id
	ChangeKeys   = "keys"   // Key: ""
	ChangePolicy = "policy" // Key: ""
)

// Change says what one revision made different. It is a notice: the receiver
// reads the thing again, and finds it as it is by then, or gone.
type Change struct {
	Revision int64
	Kind     string
	Key      string
}

// revise gives a transaction its revision. It comes before anything else that
// the transaction reads: from here on no other one writes.
func (s *Store) revise(tx conn, kind, key string) (int64, error) {
	var revision int64
	err := tx.row(`UPDATE meta SET revision = revision + 1 WHERE id = 1 RETURNING revision`)(&revision)
	if err != nil {
		return 0, err
	}
	_, err = tx.exec(`INSERT INTO changes (revision, kind, key) VALUES ($1, $2, $3)`, revision, kind, key)
	if err != nil {
		return 0, err
	}
	_, err = tx.exec(`DELETE FROM changes WHERE revision <= $1`, revision-s.keepChanges)
	return revision, err
}

// Revision is the newest one; 0 before the first.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	revision, err := revisionOf(s.read(ctx))
	if err != nil {
		return 0, failed("reading the revision", err)
	}
	return revision, nil
}

func revisionOf(c conn) (revision int64, err error) {
	err = c.row(`SELECT revision FROM meta WHERE id = 1`)(&revision)
	return revision, err
}

// ChangesSince lists what came after a revision, in order, at most limit (0:
// 10,000, which is also the most). ErrGap says that some of it is no longer
// kept, or that the database has not got as far as revision.
func (s *Store) ChangesSince(ctx context.Context, revision int64, limit int) ([]Change, error) {
	var newest int64
	var out []Change
	err := s.snapshot(ctx, "reading changes", func(tx conn) (err error) {
		if newest, err = revisionOf(tx); err != nil {
			return err
		}
		return tx.rows(func(row scan) error {
			var c Change
			if err := row(&c.Revision, &c.Kind, &c.Key); err != nil {
				return err
			}
			out = append(out, c)
			return nil
		}, `SELECT revision, kind, key FROM changes WHERE revision > $1 ORDER BY revision LIMIT $2`,
			revision, atMost(limit))
	})
	if err != nil {
		return nil, err
	}
	// Revisions have no gaps, so the first row tells what is missing.
	missing := newest > revision && (len(out) == 0 || out[0].Revision != revision+1)
	if missing || newest < revision {
		return nil, ErrGap
	}
	return out, nil
}
