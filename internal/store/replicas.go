package store

import (
	"context"
	"time"
)

// Replica is one extauthz that may hold a lease.
type Replica struct {
	Name     string
	Lease    time.Duration // the longest that it was given
	Own      bool          // lives inside a control's process, and ends with it
	JoinedAt time.Time     // when it was first listed; zero: by an earlier release
}

// ListReplica lists a replica before it is given a lease of this length. One
// that is listed already keeps the longer lease: it may still hold it. From
// its return on Replicas names it to every control of this database, until it
// is dropped.
func (s *Store) ListReplica(ctx context.Context, name string, lease time.Duration, own bool) error {
	return s.write(ctx, "listing replica", func(tx conn) error {
		return listReplica(tx, Replica{Name: name, Lease: lease, Own: own, JoinedAt: s.now()})
	})
}

func listReplica(tx conn, r Replica) error {
	_, err := tx.exec(`INSERT INTO replicas (name, lease, own, joined_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET own = excluded.own,
			lease = CASE WHEN excluded.lease > replicas.lease THEN excluded.lease ELSE replicas.lease END`,
		r.Name, wholeMicros(r.Lease), number(r.Own), micros(r.JoinedAt))
	return err
}

// wholeMicros rounds up: a lease that is kept must not be shorter than given.
func wholeMicros(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

// Replicas lists all who may hold a lease, by name.
func (s *Store) Replicas(ctx context.Context) ([]Replica, error) {
	var out []Replica
	err := s.read(ctx).rows(func(row scan) error {
		var r Replica
		var lease, joined int64
		err := row(&r.Name, &lease, &r.Own, &joined)
		r.Lease, r.JoinedAt = time.Duration(lease)*time.Microsecond, timeOf(joined)
		out = append(out, r)
		return err
	}, `SELECT name, lease, own, joined_at FROM replicas ORDER BY name`)
	if err != nil {
		return nil, failed("listing replicas", err)
	}
	return out, nil
}

// DropReplica takes a replica whose lease is over off the list. One that is
// not listed is no error.
func (s *Store) DropReplica(ctx context.Context, name string) error {
	return s.write(ctx, "dropping replica", func(tx conn) error {
		_, err := tx.exec(`DELETE FROM replicas WHERE name = $1`, name)
		return err
	})
}

// DropOwnReplicas takes those off the list that lived inside a control's
// process. The caller knows that every such process is gone.
func (s *Store) DropOwnReplicas(ctx context.Context) error {
	return s.write(ctx, "dropping replicas", func(tx conn) error {
		_, err := tx.exec(`DELETE FROM replicas WHERE own = 1`)
		return err
	})
}
