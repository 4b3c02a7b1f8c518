package store

import (
	"context"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// nextSeq gives a transaction its place in the log. Like revise it comes
// before what the transaction removes, so that all of them take the rows in
// one order.
func nextSeq(tx conn) (seq int64, err error) {
	err = tx.row(`UPDATE meta SET seq = seq + 1 WHERE id = 1 RETURNING seq`)(&seq)
	return seq, err
}

// appendEntry writes an entry whose Seq is nextSeq's.
func appendEntry(tx conn, e revocation.Entry) error {
	_, err := tx.exec(`INSERT INTO revocations (seq, kind, key, server_id, until_time, life) VALUES ($1, $2, $3, $4, $5, $6)`,
		e.Seq, int64(e.Kind), e.Key, e.Server.String(), micros(e.Until), e.Life.Microseconds())
	return err
}

// begin gives an entry that is made now its life.
func (s *Store) begin(e *revocation.Entry, callLimit time.Duration) {
	e.Life = revocation.Life(callLimit)
	e.Until = s.now().Add(e.Life).UTC().Truncate(time.Microsecond)
}

// Position is the newest entry ever made, whether it is still kept or not.
func (s *Store) Position(ctx context.Context) (revocation.Position, error) {
	var at revocation.Position
	err := s.read(ctx).row(`SELECT database_id, epoch, seq FROM meta WHERE id = 1`)(&at.Database, &at.Epoch, &at.Seq)
	if err != nil {
		return revocation.Position{}, failed("reading the position of the revocation log", err)
	}
	return at, nil
}

// RevocationsSince lists the kept entries after seq, in order, at most limit
// (0: 10,000, which is also the most).
func (s *Store) RevocationsSince(ctx context.Context, seq int64, limit int) ([]revocation.Entry, error) {
	var out []revocation.Entry
	err := s.read(ctx).rows(func(row scan) error {
		e, err := scanEntry(row)
		out = append(out, e)
		return err
	}, `SELECT seq, kind, key, server_id, until_time, life FROM revocations WHERE seq > $1 ORDER BY seq LIMIT $2`,
		seq, atMost(limit))
	if err != nil {
		return nil, failed("reading revocations", err)
	}
	return out, nil
}

func scanEntry(row scan) (revocation.Entry, error) {
	var e revocation.Entry
	var server string
	var until, life int64
	if err := row(&e.Seq, &e.Kind, &e.Key, &server, &until, &life); err != nil {
		return e, err
	}
	var err error
	if e.Server, err = identity.ParseServerID(server); err != nil {
		return e, fault{err}
	}
	e.Until, e.Life = timeOf(until), time.Duration(life)*time.Microsecond
	return e, nil
}

// OldestRevocation is the highest seq that was ever dropped, 0 for none: a
// reader that is behind it must read all that is kept.
func (s *Store) OldestRevocation(ctx context.Context) (int64, error) {
	var seq int64
	if err := s.read(ctx).row(`SELECT dropped_seq FROM meta WHERE id = 1`)(&seq); err != nil {
		return 0, failed("reading the start of the revocation log", err)
	}
	return seq, nil
}

// DropRevocations drops the entries whose Until is at or before a time, or
// now if that is earlier, and says how many. Their numbers stay used.
func (s *Store) DropRevocations(ctx context.Context, before time.Time) (int64, error) {
	at := micros(earlier(before, s.now()))
	var dropped int64
	for {
		var n int64
		err := s.write(ctx, "dropping revocations", func(tx conn) (err error) {
			n, err = dropOldest(tx, at)
			return err
		})
		if err != nil {
			return dropped, err
		}
		if dropped += n; n < rowsPerWrite {
			return dropped, nil
		}
	}
}

// dropOldest drops what leaves first, so few that no delete has to wait for it.
func dropOldest(tx conn, at int64) (int64, error) {
	const oldest = `SELECT seq FROM revocations WHERE until_time <= $1 ORDER BY until_time LIMIT $2`
	var highest int64
	err := tx.row(`SELECT COALESCE(MAX(seq), 0) FROM (`+oldest+`) AS oldest`, at, rowsPerWrite)(&highest)
	if err != nil || highest == 0 {
		return 0, err
	}
	_, err = tx.exec(`UPDATE meta SET dropped_seq = $1 WHERE id = 1 AND dropped_seq < $1`, highest)
	if err != nil {
		return 0, err
	}
	return tx.exec(`DELETE FROM revocations WHERE seq <= $3 AND seq IN (`+oldest+`)`, at, rowsPerWrite, highest)
}
