package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/store/storetest"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

var testKey = [32]byte{1, 2, 3}

func TestMain(m *testing.M) {
	if path := os.Getenv(killedChild); path != "" {
		writeUntilKilled(path)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func(store.Config) (*store.Store, error) {
		path := filepath.Join(t.TempDir(), "arbiter.db")
		return func(c store.Config) (*store.Store, error) {
			c.Path = path
			if c.Key == [32]byte{} {
				c.Key = testKey
			}
			return store.Open(t.Context(), c)
		}
	})
}

// opened opens the database at path; the caller closes it.
func opened(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Path: path, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func created(t *testing.T, s *store.Store, name string, headers ...store.Header) store.Server {
	t.Helper()
	srv, err := s.CreateServer(t.Context(), store.Server{Name: name}, headers)
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

func TestFilesAreTheOwnersOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "odd ?name%20#.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := opened(t, path)
	defer closed(t, s)
	created(t, s, "a")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(f.Name(), "odd ?name%20#.db") || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f.Name(), info.Mode())
		}
	}
	if len(files) != 3 {
		t.Errorf("%d files, want the database, -wal and -shm", len(files))
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, path string)
		key     [32]byte
		want    error
		text    string // the error's text has it
	}{
		{"another key", founded, [32]byte{9}, store.ErrKey, "key"},
		{"no key", founded, [32]byte{}, store.ErrKey, "zeros"},
		{"a newer database", newer, testKey, store.ErrNewer, "its version is 999, this program knows up to " + newestMigration(t)},
		{"no directory", func(*testing.T, string) {}, testKey, store.ErrUnavailable, "nothing was changed"},
		{"another kind of file", garbage, testKey, store.ErrUnavailable, "nothing was changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "below", "arbiter.db")
			tt.prepare(t, path)
			before, _ := os.ReadFile(path)
			s, err := store.Open(t.Context(), store.Config{Path: path, Key: tt.key})
			if err == nil {
				closed(t, s)
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("error %v, want %v with %q", err, tt.want, tt.text)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

// newestMigration is the number that the newest one's file begins with.
func newestMigration(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	number, _, _ := strings.Cut(filepath.Base(slices.Max(files)), "_")
	return strings.TrimLeft(number, "0")
}

func founded(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	closed(t, opened(t, path))
}

func newer(t *testing.T, path string) {
	founded(t, path)
	s := opened(t, path)
	defer closed(t, s)
	if err := s.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)`); err != nil {
		t.Fatal(err)
	}
}

func garbage(t *testing.T, path string) {
	founded(t, path)
	if err := os.WriteFile(path, bytes.Repeat([]byte("garbage\n"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each fault is made, every method that writes is called, and what the
// database held is compared; then the fault ends, and writing works again.
func TestFaultsChangeNothing(t *testing.T) {
	for _, tt := range []struct{ name, start, end string }{
		{"read-only", "PRAGMA query_only(1)", "PRAGMA query_only(0)"},
		{"full", "PRAGMA max_page_count(1)", "PRAGMA max_page_count(1000000)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
			defer closed(t, s)
			srv := created(t, s, "a", store.Header{Name: "A", Value: secret.New("b")})
			tok, err := s.CreateToken(t.Context(), store.AccessToken{Server: srv.ID, Digest: token.Digest{1}})
			if err != nil {
				t.Fatal(err)
			}
			before := state(t, s)
			if err := s.Exec(tt.start); err != nil {
				t.Fatal(err)
			}
			wantUnavailable(t, s, srv, tok)
			if after := state(t, s); after != before {
				t.Errorf("state was\n%s\nand is\n%s", before, after)
			}
			if err := s.Exec(tt.end); err != nil {
				t.Fatal(err)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.DeleteToken(t.Context(), srv.ID, tok.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// wantUnavailable writes what does not fit a page that is there already.
func wantUnavailable(t *testing.T, s *store.Store, srv store.Server, tok store.AccessToken) {
	t.Helper()
	long := strings.Repeat("x", 100_000)
	_, err1 := s.CreateServer(t.Context(), store.Server{Name: long}, nil)
	_, err2 := s.UpdateServer(t.Context(), srv.ID, func(s *store.Server) error { s.Name = long; return nil }, nil)
	_, err3 := s.CreateToken(t.Context(), store.AccessToken{Server: srv.ID, Name: long, Digest: token.Digest{2}})
	err4 := s.AddDecisions(t.Context(), []store.Decision{{ID: long, JSON: []byte("{}")}})
	errReplica := s.ListReplica(t.Context(), long, time.Minute, false)
	_, errPolicy := s.AddPolicy(t.Context(), store.Policy{Revision: long, Files: map[string][]byte{"policy.rego": []byte(long)}})
	errs := []error{err1, err2, err3, err4, errReplica, errPolicy}
	if readOnly := s.Check(t.Context()); readOnly != nil { // a full one can still do these
		_, err5 := s.DeleteServer(t.Context(), srv.ID)
		_, err6 := s.DeleteToken(t.Context(), srv.ID, tok.ID)
		_, err7 := s.Keys(t.Context())
		at, err8 := s.Reached(t.Context())
		if err8 != nil {
			t.Error(err8)
		}
		_, err9 := s.AcceptRestore(t.Context(), store.Restore{Seen: at, All: true})
		err10, err11 := s.DropReplica(t.Context(), "a"), s.DropOwnReplicas(t.Context())
		errs = append(errs, readOnly, err5, err6, err7, err9, err10, err11)
	}
	for i, err := range errs {
		if !errors.Is(err, store.ErrUnavailable) || !strings.HasSuffix(err.Error(), "nothing was changed") {
			t.Errorf("write %d: error %v", i+1, err)
		} else if len(err.Error()) > 300 || strings.Count(err.Error(), "nothing was changed") != 1 {
			t.Errorf("write %d: odd text: %.300s", i+1, err.Error())
		}
	}
}

// state is everything that a write could have changed.
func state(t *testing.T, s *store.Store) string {
	t.Helper()
	servers, _, err1 := s.Servers(t.Context(), store.Page{})
	at, err2 := s.Position(t.Context())
	revision, err3 := s.Revision(t.Context())
	changes, err4 := s.ChangesSince(t.Context(), 0, 0)
	entries, err5 := s.RevocationsSince(t.Context(), 0, 0)
	tokens, _, err6 := s.Tokens(t.Context(), servers[0].ID, store.Page{})
	headers, _, err7 := s.UpstreamHeaders(t.Context(), servers[0].ID)
	replicas, err8 := s.Replicas(t.Context())
	policy, err9 := s.Policy(t.Context())
	if errors.Is(err9, store.ErrNotFound) {
		err9 = nil
	}
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintln(servers, at, revision, changes, entries, tokens, headers, replicas, policy)
}

func TestDamagedPagesAreFaultsNotAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arbiter.db")
	s := opened(t, path)
	for i := range 50 {
		created(t, s, fmt.Sprint(i))
	}
	closed(t, s)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(text); i++ { // all but the first page
		text[i] ^= 0xa5
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = store.Open(t.Context(), store.Config{Path: path, Key: testKey})
	if err == nil {
		defer closed(t, s)
		_, _, err = s.TokenByDigest(t.Context(), token.Digest{})
	}
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotFound) {
		t.Fatalf("error %v, want %v", err, store.ErrUnavailable)
	}
}
