package store_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// churned is a store whose clock the test moves.
type churned struct {
	*store.Store

	path string
	now  time.Time
	made int // tokens and servers so far
}

func newChurned(t *testing.T, keepChanges int64) *churned {
	t.Helper()
	c := &churned{path: filepath.Join(t.TempDir(), "arbiter.db"), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var err error
	c.Store, err = store.Open(t.Context(), store.Config{
		Path: c.path, Key: testKey, KeepChanges: keepChanges, Now: func() time.Time { return c.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c.Store) })
	return c
}

// tokens makes tokens on a server, deletes them, and lets the life of what they
// leave behind pass.
func (c *churned) tokens(t *testing.T, server identity.ServerID, n int) {
	t.Helper()
	for range n {
		c.made++
		var digest token.Digest
		binary.BigEndian.PutUint64(digest[:], uint64(c.made))
		row, err := c.CreateToken(t.Context(), store.AccessToken{Server: server, Digest: digest})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.DeleteToken(t.Context(), server, row.ID); err != nil {
			t.Fatal(err)
		}
	}
	c.pass(t, n)
}

// pass lets the life of n entries pass, and wants exactly them to be dropped.
func (c *churned) pass(t *testing.T, n int) {
	t.Helper()
	c.now = c.now.Add(revocation.Life(store.DefaultCallLimit) + time.Second)
	dropped, err := c.DropRevocations(t.Context(), c.now)
	if err != nil || dropped != int64(n) {
		t.Fatalf("dropped %d entries, %v, want %d", dropped, err, n)
	}
}

// count is how many rows a table has.
func (c *churned) count(t *testing.T, table string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+c.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// bytes is the size of the database and of what SQLite writes beside it.
func (c *churned) bytes(t *testing.T) (sum int64) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(c.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	return sum
}

// Tokens that come and go leave nothing behind for longer than the life of
// their entries: what one round has used, the next one uses again.
func TestTokenChurnIsBounded(t *testing.T) {
	c := newChurned(t, 0)
	srv := created(t, c.Store, "a")
	const each = 600 // more than one transaction drops
	c.tokens(t, srv.ID, each)
	once := c.bytes(t)
	c.tokens(t, srv.ID, each)
	for table, want := range map[string]int{"access_tokens": 0, "revocations": 0, "changes": 1, "servers": 1} {
		if got := c.count(t, table); got != want {
			t.Errorf("%s has %d rows after %d tokens came and went, want %d", table, got, c.made, want)
		}
	}
	// A page more or less is a matter of where the rows fell.
	if got := c.bytes(t); got > once+once/10 {
		t.Errorf("%d bytes after two rounds, %d after one", got, once)
	}
	oldest, err := c.OldestRevocation(t.Context())
	if err != nil || oldest != int64(c.made) {
		t.Errorf("the newest dropped entry is %d, %v, want %d", oldest, err, c.made)
	}
}

// Servers that come and go leave changes behind, as many as are kept.
func TestServerChurnIsBounded(t *testing.T) {
	const keep, rounds, each = 100, 3, 100
	c := newChurned(t, keep)
	for round := range rounds {
		for i := range each {
			srv := created(t, c.Store, fmt.Sprint(round, "-", i))
			if _, err := c.DeleteServer(t.Context(), srv.ID); err != nil {
				t.Fatal(err)
			}
		}
		c.pass(t, each)
	}
	for table, want := range map[string]int{"servers": 0, "revocations": 0, "changes": keep} {
		if got := c.count(t, table); got != want {
			t.Errorf("%s has %d rows after %d servers came and went, want %d", table, got, rounds*each, want)
		}
	}
}
