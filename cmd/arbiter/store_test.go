package main

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/journal"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// damaged is a data directory whose database was put back to a backup, after
// more had been done to it. What is named after the backup was made after it.
type damaged struct {
	*shell
	servers      map[string]store.Server
	tokens       map[string]store.AccessToken
	backup, seen store.Reached
}

var damagedKey = [32]byte{7}

// newDamaged makes the state that accept-restore is for:
//
//	backup: servers kept and deleted, tokens kept/live, kept/deleted, deleted/any
//	after:  kept/deleted and server deleted are deleted, kept is disabled
//
// kept/after, made after the backup, is gone with what was put back.
func newDamaged(t *testing.T) *damaged {
	t.Helper()
	d := &damaged{shell: newShell(t), servers: map[string]store.Server{}, tokens: map[string]store.AccessToken{}}
	d.write(keyFile, hex.EncodeToString(damagedKey[:]))
	s := d.open()
	for _, name := range []string{"kept", "deleted"} {
		srv, err := s.CreateServer(t.Context(), store.Server{Name: name, Enabled: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.servers[name] = srv
	}
	d.issue(s, "kept", "live")
	d.issue(s, "kept", "deleted")
	d.issue(s, "deleted", "any")
	d.follow(s)
	d.backup = d.reached(s)
	d.copyTo("backup.db")

	d.issue(s, "kept", "after")
	disable := func(srv *store.Server) error { srv.Enabled = false; return nil }
	_, err1 := s.DeleteToken(t.Context(), d.servers["kept"].ID, d.tokens["deleted"].ID)
	_, err2 := s.DeleteServer(t.Context(), d.servers["deleted"].ID)
	_, err3 := s.UpdateServer(t.Context(), d.servers["kept"].ID, disable, nil)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	d.follow(s)
	d.seen = d.reached(s)
	d.close(s)
	d.putBack("backup.db")
	return d
}

func (d *damaged) open() *store.Store {
	d.t.Helper()
	s, err := store.Open(d.t.Context(), store.Config{Path: filepath.Join(d.dir, databaseFile), Key: damagedKey})
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func (d *damaged) close(s *store.Store) {
	d.t.Helper()
	if err := s.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) issue(s *store.Store, server, name string) {
	d.t.Helper()
	made, err := s.CreateToken(d.t.Context(), store.AccessToken{Server: d.servers[server].ID, Digest: sha256.Sum256([]byte(name))})
	if err != nil {
		d.t.Fatal(err)
	}
	d.tokens[name] = made
}

func (d *damaged) reached(s *store.Store) store.Reached {
	d.t.Helper()
	at, err := s.Reached(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return at
}

// follow does what control does before it answers.
func (d *damaged) follow(s *store.Store) {
	d.t.Helper()
	if err := d.tryFollow(s); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) tryFollow(s *store.Store) error {
	d.t.Helper()
	j, err := journal.Open(d.dir, d.reached(s).Database)
	if err != nil {
		d.t.Fatal(err)
	}
	return errors.Join(j.Follow(d.t.Context(), s), j.Close())
}

// copyTo is a backup of the running database, as `.backup` and VACUUM INTO make
// one.
func (d *damaged) copyTo(name string) {
	d.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(d.dir, databaseFile))
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = db.ExecContext(d.t.Context(), `VACUUM INTO $1`, filepath.Join(d.dir, name))
	if err := errors.Join(err, db.Close()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) putBack(name string) {
	d.t.Helper()
	path := filepath.Join(d.dir, databaseFile)
	text, err := os.ReadFile(filepath.Join(d.dir, name))
	if err := errors.Join(err, os.WriteFile(path, text, 0o600), os.RemoveAll(path+"-wal"), os.RemoveAll(path+"-shm")); err != nil {
		d.t.Fatal(err)
	}
}

// wantDatabase opens what is there and compares which tokens resolve.
func (d *damaged) wantDatabase(epoch int64, live ...string) store.Reached {
	d.t.Helper()
	s := d.open()
	defer d.close(s)
	var got []string
	for _, name := range []string{"live", "deleted", "any", "after"} {
		_, _, err := s.TokenByDigest(d.t.Context(), sha256.Sum256([]byte(name)))
		if err == nil {
			got = append(got, name)
		} else if !errors.Is(err, store.ErrNotFound) {
			d.t.Fatal(err)
		}
	}
	if strings.Join(got, " ") != strings.Join(live, " ") {
		d.t.Errorf("live are %v, want %v", got, live)
	}
	at := d.reached(s)
	if at.Epoch != epoch {
		d.t.Errorf("epoch %d, want %d", at.Epoch, epoch)
	}
	return at
}

// wantServed wants a control to be able to go on.
func (d *damaged) wantServed() {
	d.t.Helper()
	s := d.open()
	defer d.close(s)
	d.follow(s)
}

// A backup that is put back is refused; the command ends again what was ended
// after it; and then it is served. Putting it back once more is noticed again.
func TestRestoredDatabase(t *testing.T) {
	d := newDamaged(t)
	for round := range int64(2) {
		s := d.open()
		var restored *journal.RestoredError
		if err := d.tryFollow(s); !errors.As(err, &restored) || restored.Now != d.backup {
			t.Fatalf("round %d: the restored database was followed: %v", round, err)
		}
		d.close(s)
		d.wantDatabase(1, "live", "deleted", "any")
		out := d.run("store", "accept-restore").ok(
			"epoch 1, seq 0, revision 2", "lost revocations          2", "access tokens ended       2", "servers deleted           1")
		if !strings.Contains(out.stderr, "arbiter server list") || strings.Contains(out.stderr, "valid again") {
			t.Errorf("stderr %q", out.stderr)
		}
		at := d.wantDatabase(2+round, "live")
		if at.Seq < d.seen.Seq+2 || at.Revision <= d.seen.Revision {
			t.Errorf("it is at %+v, and was at %+v", at, d.seen)
		}
		d.wantServed()
		d.run("store", "accept-restore").fails("nothing was restored")
		d.putBack("backup.db")
	}
}

func TestAcceptRestoreChoices(t *testing.T) {
	for _, tt := range []struct {
		end     string
		live    []string
		tokens  int64
		servers int64
		says    bool // that what was deleted is valid again
	}{
		{"lost", []string{"live"}, 2, 1, false},
		{"all", nil, 3, 1, false},
		{"none", []string{"live", "deleted", "any"}, 0, 0, true},
	} {
		t.Run(tt.end, func(t *testing.T) {
			d := newDamaged(t)
			out := d.run("store", "accept-restore", "--end="+tt.end, "--json")
			if strings.Contains(out.stderr, "valid again") != tt.says {
				t.Errorf("stderr %q", out.stderr)
			}
			got := printed[accepted](out)
			want := accepted{
				Database: d.backup.Database, Restored: pointOf(d.backup), Seen: pointOf(d.seen), Now: got.Now,
				Lost: losses{Complete: true, Revocations: 2, Settings: 2}, TokensEnded: tt.tokens, ServersDeleted: tt.servers,
			}
			if got != want {
				t.Errorf("printed %+v, want %+v", got, want)
			}
			if at := d.wantDatabase(2, tt.live...); pointOf(at) != got.Now {
				t.Errorf("printed that it is at %v, it is at %+v", got.Now, at)
			}
			d.wantServed()
		})
	}
}

// What the journal does not have whole is not called whole.
func TestAcceptRestoreWithoutTheWholeJournal(t *testing.T) {
	for _, tt := range []struct {
		name    string
		damage  func(text string) string // of the journal
		refuses string
		lost    losses
	}{
		{"lines are missing", func(text string) string {
			lines := strings.SplitAfter(text, "\n")
			return lines[0] + strings.Join(lines[2:], "")
		}, "the journal does not have all of them", losses{Revocations: 2, Settings: 2}},
		{"it is gone", func(string) string { return "" }, "never saw this database", losses{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDamaged(t)
			path := filepath.Join(d.dir, "ended-"+d.backup.Database+".jsonl")
			text, err := os.ReadFile(path)
			if err := errors.Join(err, os.WriteFile(path, []byte(tt.damage(string(text))), 0o600)); err != nil {
				t.Fatal(err)
			}
			d.run("store", "accept-restore").fails(tt.refuses)
			d.run("store", "accept-restore", "--end=lost").fails("--end=all")
			d.wantDatabase(1, "live", "deleted", "any")
			got := printed[accepted](d.run("store", "accept-restore", "--end=all", "--json"))
			if got.Lost != tt.lost || got.TokensEnded != 3 {
				t.Errorf("printed %+v", got)
			}
			d.wantDatabase(2)
			d.wantServed()
			d.run("store", "accept-restore", "--end=all").fails("nothing was restored")
		})
	}
}

func TestAcceptRestoreIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		prepare    func(d *damaged)
		args       []string
	}{
		{"control runs", "already runs", func(d *damaged) {
			release, err := (&program{data: d.dir}).lock(lockFile)
			if err != nil {
				d.t.Fatal(err)
			}
			d.t.Cleanup(release)
		}, nil},
		{"no database", "there is no database", func(d *damaged) { d.remove(databaseFile) }, nil},
		{"no key", "put it back", func(d *damaged) { d.remove(keyFile) }, nil},
		{"another key", "the key is not the one", func(d *damaged) { d.write(keyFile, strings.Repeat("ab", 32)) }, nil},
		{"garbage in the journal", "line 1", func(d *damaged) {
			d.write("ended-"+d.backup.Database+".jsonl", "garbage\n")
		}, nil},
		{"unknown choice", "--end must be one of", func(*damaged) {}, []string{"--end=some"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDamaged(t)
			tt.prepare(d)
			d.run(append([]string{"store", "accept-restore"}, tt.args...)...).fails(tt.want)
			d.putBack("backup.db")
			d.wantDatabase(1, "live", "deleted", "any")
		})
	}
	t.Run("no data directory", func(t *testing.T) {
		s := newShell(t)
		s.run("--data", filepath.Join(s.dir, "none"), "store", "accept-restore").fails("there is no database")
		if _, err := os.Stat(filepath.Join(s.dir, "none")); err == nil {
			t.Error("a data directory was made")
		}
	})
}

func (d *damaged) remove(name string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
		d.t.Fatal(err)
	}
}

// A new database is not a restored one, also not in a directory that has known
// another; and what was noted of the other is not forgotten by it.
func TestNewDatabaseIsNotRestored(t *testing.T) {
	d := newDamaged(t)
	d.remove(databaseFile)
	s := d.open()
	if _, err := s.CreateServer(t.Context(), store.Server{Name: "new"}, nil); err != nil {
		t.Fatal(err)
	}
	d.follow(s)
	d.close(s)
	d.run("store", "accept-restore").fails("nothing was restored")
	d.putBack("backup.db")
	d.run("store", "accept-restore").ok("access tokens ended       2")
}

// What accept-restore writes into the log stays there as long as a replica may
// remember, by the clock of the machine.
func TestEndedAgainIsKept(t *testing.T) {
	d := newDamaged(t)
	d.run("store", "accept-restore").ok()
	s := d.open()
	defer d.close(s)
	list, err := s.RevocationsSince(t.Context(), d.seen.Seq, 0)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range list {
		kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.Until.After(cliTime.Add(10*time.Minute))))
	}
	if strings.Join(kinds, ", ") != "1 true, 2 true" {
		t.Errorf("entries: %v", kinds)
	}
}
