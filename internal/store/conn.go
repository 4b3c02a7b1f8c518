package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// fault is trouble with the database itself, as opposed to an answer.
type fault struct{ cause error }

func (f fault) Error() string { return f.cause.Error() }
func (f fault) Unwrap() error { return f.cause }

// uncertain is the fault of a commit that the disk may or may not have.
type uncertain struct{ fault }

// failed puts what was being done before err. Where the database is at fault
// it says so, and what became of a change: before a commit nothing was
// changed, and a commit that fails is rolled back. Only when the disk refuses
// to say whether it has it can a crash bring it back.
func failed(doing string, err error) error {
	var f fault
	switch {
	case errors.As(err, new(uncertain)):
		return fmt.Errorf("%s: %w: %w: %w", doing, ErrUnavailable, err, ErrUncertain)
	case !errors.As(err, &f):
		return fmt.Errorf("%s: %w", doing, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w: nothing was changed", doing, err)
	}
	return fmt.Errorf("%s: %w: %w: nothing was changed", doing, ErrUnavailable, err)
}

// conn runs statements, in a transaction or each on its own. What goes wrong
// with the database comes out as a fault.
type conn struct {
	ctx context.Context
	on  interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
}

// write runs do in one transaction that commits when do returns nil. What it
// returns says what was being done.
func (s *Store) write(ctx context.Context, doing string, do func(conn) error) error {
	if err := s.transact(ctx, s.writer, nil, do); err != nil {
		return failed(doing, err)
	}
	return nil
}

// snapshot runs do in one transaction that reads: all of it sees the same
// commits.
func (s *Store) snapshot(ctx context.Context, doing string, do func(conn) error) error {
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	if err := s.transact(ctx, s.readers, options, do); err != nil {
		return failed(doing, err)
	}
	return nil
}

func (s *Store) transact(ctx context.Context, db *sql.DB, options *sql.TxOptions, do func(conn) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return faultOf(ctx, err)
	}
	defer tx.Rollback() // of no effect after a commit
	if err := do(conn{ctx, tx}); err != nil {
		return err
	}
	err = tx.Commit()
	if unsynced(err) {
		return uncertain{fault{err}}
	}
	return faultOf(ctx, err)
}

// unsynced reports whether a commit was written but not confirmed by the disk.
// A write that fails, for lack of space or whatever else, leaves no commit.
func unsynced(err error) bool {
	var told *sqlite.Error
	if !errors.As(err, &told) {
		return false
	}
	switch told.Code() {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC:
		return true
	}
	return false
}

// read runs single statements, each seeing one state of the database.
func (s *Store) read(ctx context.Context) conn { return conn{ctx, s.readers} }

// faultOf prefers the reason for which the caller gave up over what the
// database said when it was interrupted.
func faultOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if given := ctx.Err(); given != nil {
		return fault{given}
	}
	return fault{err}
}

// exec runs a statement and returns how many rows it touched.
func (c conn) exec(query string, args ...any) (int64, error) {
	result, err := c.on.ExecContext(c.ctx, query, args...)
	if err != nil {
		return 0, faultOf(c.ctx, err)
	}
	n, err := result.RowsAffected()
	return n, faultOf(c.ctx, err)
}

// scan puts one row's columns into variables.
type scan func(into ...any) error

// row runs a query of one row; without one the scan says ErrNotFound.
func (c conn) row(query string, args ...any) scan {
	row := c.on.QueryRowContext(c.ctx, query, args...)
	return func(into ...any) error {
		err := row.Scan(into...)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return faultOf(c.ctx, err)
	}
}

// rows calls each for every row of a query.
func (c conn) rows(each func(scan) error, query string, args ...any) error {
	rows, err := c.on.QueryContext(c.ctx, query, args...) //nolint:sqlclosecheck // closed two lines below
	if err != nil {
		return faultOf(c.ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		err := each(func(into ...any) error { return faultOf(c.ctx, rows.Scan(into...)) })
		if err != nil {
			return err
		}
	}
	return faultOf(c.ctx, rows.Err())
}
