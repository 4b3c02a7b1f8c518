package store_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// killedChild makes the test binary the program that gets killed: it has the
// path of the database.
const killedChild = "ARBITER_TEST_STORE_CHILD"

// writeUntilKilled says on standard output what was acknowledged to it:
//
//	server ID | token ID | deleted ID
//
// It ends by itself only when its standard input does.
func writeUntilKilled(path string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := store.Open(ctx, store.Config{Path: path, Key: testKey})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := writeOnce(ctx, s); err != nil {
					fmt.Println("error", err)
					return
				}
			}
		})
	}
	group.Wait()
}

func writeOnce(ctx context.Context, s *store.Store) error {
	name := identity.NewServerID().String()
	srv, err := s.CreateServer(ctx, store.Server{Name: name}, nil)
	if err != nil {
		return err
	}
	fmt.Println("server", srv.ID)
	for _, name := range []string{name + ":kept", name + ":deleted"} {
		tok, err := s.CreateToken(ctx, store.AccessToken{ID: name, Server: srv.ID, Digest: sha256.Sum256([]byte(name))})
		if err != nil {
			return err
		}
		fmt.Println("token", tok.ID)
	}
	if _, err := s.DeleteToken(ctx, srv.ID, name+":deleted"); err != nil {
		return err
	}
	fmt.Println("deleted", name+":deleted")
	return nil
}

// TestKilledProcessLosesNothingAcknowledged kills a writing process in the
// middle, several times over the same database.
func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arbiter.db")
	acknowledged := map[string]string{} // id -> what was acknowledged last
	for _, lines := range []int{1, 57, 130, 200} {
		killAfter(t, path, lines, acknowledged)
		s := opened(t, path)
		if err := lost(t.Context(), s, acknowledged); err != nil {
			t.Errorf("after %d lines: %v", lines, err)
		}
		closed(t, s)
	}
}

func killAfter(t *testing.T, path string, lines int, acknowledged map[string]string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), killedChild+"="+path)
	child.Stderr = os.Stderr
	stdin, err1 := child.StdinPipe()
	stdout, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2, child.Start()); err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	n := 0
	for in := bufio.NewScanner(stdout); in.Scan(); { // also what was in the pipe when it died
		what, id, _ := strings.Cut(in.Text(), " ")
		if what == "error" {
			t.Error(in.Text())
		}
		acknowledged[id] = what
		if n++; n == lines {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || n < lines {
		t.Fatalf("the child ended by itself after %d lines", n)
	}
}

// lost compares the database with what was acknowledged. What was under way
// may be there or not.
func lost(ctx context.Context, s *store.Store, acknowledged map[string]string) error {
	entries, err := s.RevocationsSince(ctx, 0, 0)
	if err != nil {
		return err
	}
	revoked := map[string]bool{}
	for i, e := range entries {
		if e.Seq != int64(i)+1 {
			return fmt.Errorf("entry %d has seq %d", i+1, e.Seq)
		}
		revoked[e.Key] = true
	}
	for id, what := range acknowledged {
		_, _, err := s.TokenByDigest(ctx, sha256.Sum256([]byte(id)))
		switch what {
		case "server":
			parsed, err := identity.ParseServerID(id)
			if err == nil {
				_, err = s.Server(ctx, parsed)
			}
			if err != nil {
				return fmt.Errorf("server %s: %w", id, err)
			}
		case "token":
			if (err == nil) == revoked[id] {
				return fmt.Errorf("token %s: %s, revoked %v", id, fmt.Sprint(err), revoked[id])
			}
		case "deleted":
			if !errors.Is(err, store.ErrNotFound) || !revoked[id] {
				return fmt.Errorf("deleted token %s: %s, revoked %v", id, fmt.Sprint(err), revoked[id])
			}
		}
	}
	return nil
}
