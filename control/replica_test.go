package control_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/xds"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// replica follows everything, as an extauthz does, and refuses policies when the
// test says so.
type replica struct {
	node    string
	revoked *revocation.Follower

	mu     sync.Mutex // guards the rest
	refuse error
	policy *pb.Policy
	server *pb.Server // the last one
	at     int64
}

func (f *fixture) replica(node string) *replica {
	f.t.Helper()
	r := &replica{node: node}
	log := slog.New(slog.DiscardHandler)
	r.revoked = revocation.NewFollower(revocation.FollowerConfig{
		Client: f.control, Replica: node, Slog: log,
		Cut: func(keys ...revocation.Key) []int64 { return make([]int64, len(keys)) }, CutAll: func() {},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- r.revoked.Run(ctx) }()
	go func() {
		ended <- client.Run(ctx, client.Config{Conn: f.conn, Node: node, Types: xds.FleetTypes(), Apply: r.apply, Log: log})
	}()
	f.t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				f.t.Errorf("%s: %v", node, err)
			}
		}
	})
	f.eventually(node+" runs what there is", func() bool {
		now, err := f.store.Revision(f.t.Context())
		return err == nil && r.revision() >= now && r.revoked.Alive()
	})
	return r
}

func (r *replica) apply(u client.Update) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range u.Changed {
		switch u.Type {
		case xds.TypePolicy:
			if r.refuse != nil {
				return r.refuse
			}
			r.policy = &pb.Policy{}
			if err := resource.Body.UnmarshalTo(r.policy); err != nil {
				return err
			}
		case xds.TypeServer:
			r.server = &pb.Server{}
			if err := resource.Body.UnmarshalTo(r.server); err != nil {
				return err
			}
		}
	}
	r.at = max(r.at, u.Revision)
	r.revoked.Settings(r.at, nil)
	return nil
}

func (r *replica) refuses(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

func (r *replica) revision() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

func (r *replica) runs() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy.GetRevision()
}
