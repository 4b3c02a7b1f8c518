//go:build !race

package extauthz

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// machineLease is short, so that a run passes many.
const machineLease = revocation.LeaseLeast

// machineRevision is the one revision of the settings.
func machineRevision() int64 { return 1 }

// machineControl is control as replicas and callers see it: the real store and
// the real hub, in processes that end and start again.
type machineControl struct {
	store  *store.Store
	server identity.ServerID

	mu    sync.Mutex // guards the rest
	hub   *revocation.Hub
	alive context.Context // of the process
	end   context.CancelFunc
	wall  time.Duration                        // how far the store's clock is ahead
	lags  bool                                 // lookups are answered from an earlier state
	read  map[token.Digest]*pb.ResolveResponse // what they found first
}

// database is a copy of a database with one server, of which every run opens
// one of its own: making one takes longer than a run.
type database struct {
	dir    string
	server identity.ServerID
	whole  []byte
}

const databaseName = "arbiter.db"

func newDatabase(t *testing.T) database {
	t.Helper()
	d := database{dir: t.TempDir()}
	path := filepath.Join(d.dir, databaseName)
	s, err := store.Open(t.Context(), store.Config{Path: path, Key: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := s.CreateServer(t.Context(), store.Server{Name: "a", Enabled: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.server = srv.ID
	if d.whole, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return d
}

// open puts the database back to its beginning.
func (d database) open(now func() time.Time) (*store.Store, error) {
	path := filepath.Join(d.dir, databaseName)
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.RemoveAll(path + suffix); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(path, d.whole, 0o600); err != nil {
		return nil, err
	}
	return store.Open(context.Background(), store.Config{Path: path, Key: [32]byte{1}, Now: now})
}

func newMachineControl(d database) (*machineControl, error) {
	c := &machineControl{server: d.server, read: map[token.Digest]*pb.ResolveResponse{}}
	var err error
	if c.store, err = d.open(c.now); err != nil {
		return nil, err
	}
	return c, c.start()
}

func (c *machineControl) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.wall)
}

// start is what control does at its start: who may hold a lease is on disk.
func (c *machineControl) start() error {
	replicas, err := c.store.Replicas(context.Background())
	if err != nil {
		return err
	}
	listed := map[string]time.Duration{}
	for _, r := range replicas {
		listed[r.Name] = r.Lease
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive, c.end = context.WithCancel(context.Background())
	c.hub = revocation.NewHub(revocation.HubConfig{
		Log: c.store, Roster: machineRoster{c.store}, Listed: listed, Lease: machineLease,
		Pushed: machineRevision, Due: machineRevision, Grace: machineLease / 3,
	})
	return nil
}

// kill returns when nothing of the process is left.
func (c *machineControl) kill() {
	c.mu.Lock()
	c.hub = nil
	c.end()
	c.mu.Unlock()
	synctest.Wait()
}

// serving is the hub, nil when control is not there, and its process's life.
func (c *machineControl) serving() (*revocation.Hub, context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hub, c.alive
}

// gap makes the log forget all it has: its clock was far ahead when it was
// housekeeping's turn.
func (c *machineControl) gap() error {
	set := func(wall time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wall = wall
	}
	set(2 * revocation.Life(revocation.CallMost))
	defer set(0)
	_, err := c.store.DropRevocations(context.Background(), c.now())
	return err
}

// resolve answers like control's service.
func (c *machineControl) resolve(ctx context.Context, in *pb.ResolveRequest) (*pb.ResolveResponse, error) {
	if hub, _ := c.serving(); hub == nil {
		return nil, status.Error(codes.Unavailable, "control is not there")
	}
	digest := token.Digest(in.GetDigest())
	if old := c.earlier(digest); old != nil {
		return old, nil
	}
	found, at, err := c.store.TokenByDigest(ctx, digest)
	if errors.Is(err, store.ErrNotFound) {
		return nil, status.Error(codes.NotFound, "no token has this digest")
	}
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out := &pb.ResolveResponse{
		TokenId: found.ID, Name: found.Name, ServerId: found.Server.String(),
		Seq: at.Seq, Epoch: at.Epoch, Database: at.Database,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read[digest] == nil {
		c.read[digest] = out
	}
	return out, nil
}

// earlier is what a reader that lags behind says of a token; nil: nothing lags,
// or it was not asked for before.
func (c *machineControl) earlier(digest token.Digest) *pb.ResolveResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lags {
		return nil
	}
	return c.read[digest]
}

func (c *machineControl) lag(lags bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lags = lags
}

// machineRoster lists replicas in the store, like control's.
type machineRoster struct{ store *store.Store }

func (r machineRoster) Add(ctx context.Context, replica string, lease time.Duration) error {
	return r.store.ListReplica(ctx, replica, lease, false)
}

func (r machineRoster) Remove(ctx context.Context, replica string) error {
	return r.store.DropReplica(ctx, replica)
}
