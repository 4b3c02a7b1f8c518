package store_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// Another process holds the database: a writer waits, then says that nothing
// was changed; readers go on.
func TestBusyDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arbiter.db")
	s := opened(t, path)
	defer closed(t, s)
	srv := created(t, s, "a")
	other, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := s.Exec("PRAGMA busy_timeout(20)"); err != nil {
		t.Fatal(err)
	}
	_, err = s.DeleteServer(t.Context(), srv.ID)
	if !errors.Is(err, store.ErrUnavailable) || !strings.HasSuffix(err.Error(), "nothing was changed") {
		t.Errorf("error %v, want %v", err, store.ErrUnavailable)
	}
	if _, err := s.Server(t.Context(), srv.ID); err != nil {
		t.Errorf("reading: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteServer(t.Context(), srv.ID); err != nil {
		t.Errorf("after the other let go: %v", err)
	}
}

func TestGivingUpChangesNothing(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
	defer closed(t, s)
	srv := created(t, s, "a")
	before := state(t, s)
	for _, tt := range []struct {
		name string
		do   func(context.Context, context.CancelFunc) error
	}{
		{"before", func(ctx context.Context, cancel context.CancelFunc) error {
			cancel()
			_, err := s.DeleteServer(ctx, srv.ID)
			return err
		}},
		{"in the middle", func(ctx context.Context, cancel context.CancelFunc) error {
			_, err := s.UpdateServer(ctx, srv.ID, func(srv *store.Server) error {
				srv.Name = "b"
				cancel()
				return nil
			}, nil)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := tt.do(ctx, cancel)
			if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("error %v, want %v alone", err, context.Canceled)
			}
			if after := state(t, s); after != before {
				t.Errorf("state was\n%s\nand is\n%s", before, after)
			}
		})
	}
}
