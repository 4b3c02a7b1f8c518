//go:build e2e

package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// badNames: what is stored, logged and shown to operators is not long.
func (c *liars) badNames(t *testing.T) {
	before := c.listed(t)
	for _, name := range []string{"", strings.Repeat("x", 257), strings.Repeat("x", 1<<20)} {
		l := lie(t, c.control)
		l.hello(&pb.Hello{Replica: name, Empty: true})
		l.refused(codes.InvalidArgument)
	}
	if after := c.listed(t); after > before {
		t.Errorf("%d replicas are stored, %d were before", after, before)
	}
}

// manyNames: one delete waits for all of them at once, and those who decide are
// served as before. In a run of faults the list is filled: it ends somewhere.
func (c *liars) manyNames(t *testing.T) {
	names := 500
	if os.Getenv("FAULTTIME") != "" {
		names = 4600
	}
	taken := 0
	for i := range names {
		l := lie(t, c.control)
		l.hello(&pb.Hello{Replica: fmt.Sprintf("liar-%d", i), Empty: true})
		switch _, err := l.heard(false); {
		case err == nil:
			taken++
		case status.Code(err) != codes.ResourceExhausted:
			t.Fatal(err)
		}
	}
	if rows := c.listed(t); taken < 500 || taken > listedMost || rows > listedMost {
		t.Errorf("%d of %d names were taken, %d are stored", taken, names, rows)
	}
	if took := c.deleted(t, "liar-0"); took > 8*time.Second {
		t.Errorf("a delete took %v", took)
	}
}

// listedMost is how many replicas control lists.
const listedMost = 4096

// listed counts the replicas that control has stored.
func (c *liars) listed(t *testing.T) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(c.dir, "arbiter.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM replicas").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
