//go:build e2e

package e2e

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// smallDisk mounts a tiny file system that lives as long as the test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "disk") // short: unix sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size="+size+",mode=0700"); err != nil {
		t.Fatalf("mounting a small disk (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all the space that is left on a disk, and gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := file.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDatabaseThatCannotBeWritten: a change is an error that says so and has
// changed nothing, a call goes on as before, and afterwards all is well.
func TestDatabaseThatCannotBeWritten(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, dir string) (repair func())
		tries int // changes that are tried; each waits 5 s for a lock
	}{
		{"a full disk", fill, 6},
		{"locked by another program", holdLock, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, err := launch(smallDisk(t, "12m"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(g.stop)
			echo := testfleet.NewEcho(t, testfleet.Config{})
			server := g.addServer(t, echo.Origin(), echo.Origin())
			id, token := g.addToken(t, server)
			_, unknown := g.addToken(t, server) // not in the cache
			g.expect(t, server, token, 200)
			streams := g.live(t)
			streams.listen(t, server, token, 3)

			repair := test.spoil(t, g.dir)
			changes := [][]string{
				{"token", "delete", server, id},
				{"token", "create", server},
				{"server", "disable", server},
				{"server", "delete", server},
				{"server", "add", "another", "--rpc", "http://127.0.0.1:9"},
				{"server", "update", server, "--rpc", "http://127.0.0.1:9"},
			}
			for _, args := range changes[:test.tries] {
				if out, err := g.cli(t, "", args...); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
					t.Errorf("arbiter %s: %q, %v", strings.Join(args, " "), out, err)
				}
			}
			for range 20 {
				g.expect(t, server, token, 200)
			}
			g.expect(t, server, unknown, 200)
			if open, _ := streams.counts(); open != 3 {
				t.Errorf("%d of 3 streams live", open)
			}
			eventually(t, 15*time.Second, "doctor says that the store is ill", func() bool {
				got := attempt(t, []string{"ARBITER_DATA=" + g.dir}, "doctor")
				return got.code == 1 && strings.Contains(got.stdout, "store")
			})

			repair()
			eventually(t, 10*time.Second, "the token can be deleted", func() bool {
				_, err := g.cli(t, "", "token", "delete", server, id)
				return err == nil
			})
			g.expect(t, server, token, 401)
			g.expect(t, server, unknown, 200)
			eventually(t, 2*time.Second, "its streams end", allEnded(streams))
			eventually(t, 10*time.Second, "all is well", func() bool { _, err := g.cli(t, "", "doctor"); return err == nil })
		})
	}
}

// holdLock holds the lock of the one who writes.
func holdLock(t *testing.T, dir string) (free func()) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "arbiter.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(conn.Close(), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadOnlyDataDirectory stops the start, in one line.
func TestReadOnlyDataDirectory(t *testing.T) {
	disk := smallDisk(t, "12m")
	g, err := launch(disk)
	if err != nil {
		t.Fatal(err)
	}
	g.stop()
	if err := g.log.Close(); err != nil { // it lies there too
		t.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	got := attempt(t, []string{"ARBITER_DATA=" + disk, "ARBITER_LISTEN=" + closedPort(t)}, "up")
	if got.code != 1 || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, "read-only") {
		t.Errorf("exit code %d, stderr %s", got.code, got.stderr)
	}
}
