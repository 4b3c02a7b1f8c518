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
	_, err := tx.exec(`INSERT INTO revocations (seq, kind, key, server_id, until_time) VALUES ($1, $2, $3, $4, $5)`,
		e.Seq, int64(e.Kind), e.Key, e.Server.String(), micros(e.Until))
	return err
}

// until is when an entry made now may leave.
func (s *Store) until(callLimit time.Duration) time.Time {
	return s.now().Add(revocation.Life(callLimit)).UTC().Truncate(time.Microsecond)
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
	}, `SELECT seq, kind, key, server_id, until_time FROM revocations WHERE seq > $1 ORDER BY seq LIMIT $2`,
		seq, atMost(limit))
	if err != nil {
		return nil, failed("reading revocations", err)
	}
	return out, nil
}

func scanEntry(row scan) (revocation.Entry, error) {
	var e revocation.Entry
	var server string
	var until int64
	if err := row(&e.Seq, &e.Kind, &e.Key, &server, &until); err != nil {
		return e, err
	}
	var err error
	if e.Server, err = identity.ParseServerID(server); err != nil {
		return e, fault{err}
	}
	e.Until = timeOf(until)
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
	err := s.write(ctx, "dropping revocations", func(tx conn) error {
		var highest int64
		err := tx.row(`SELECT COALESCE(MAX(seq), 0) FROM revocations WHERE until_time <= $1`, at)(&highest)
		if err != nil || highest == 0 {
			return err
		}
		_, err = tx.exec(`UPDATE meta SET dropped_seq = $1 WHERE id = 1 AND dropped_seq < $1`, highest)
		if err != nil {
			return err
		}
		dropped, err = tx.exec(`DELETE FROM revocations WHERE until_time <= $1 AND seq <= $2`, at, highest)
		return err
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}

// NoteLease keeps that control gives leases of this length, beside longer ones
// that earlier controls gave, and returns the longest of those: 0 at the first
// start. A control that has just started has to wait so long for replicas that
// it does not know yet, and then calls SettleLease.
func (s *Store) NoteLease(ctx context.Context, lease time.Duration) (before time.Duration, err error) {
	err = s.write(ctx, "noting the lease", func(tx conn) error {
		var micros int64
		if err := tx.row(`SELECT lease FROM meta WHERE id = 1`)(&micros); err != nil {
			return err
		}
		before = time.Duration(micros) * time.Microsecond
		_, err := tx.exec(`UPDATE meta SET lease = $1 WHERE id = 1`, max(lease, before).Microseconds())
		return err
	})
	return before, err
}

// SettleLease keeps that no lease is longer than this one any more.
func (s *Store) SettleLease(ctx context.Context, lease time.Duration) error {
	return s.write(ctx, "noting the lease", func(tx conn) error {
		_, err := tx.exec(`UPDATE meta SET lease = $1 WHERE id = 1`, lease.Microseconds())
		return err
	})
}
