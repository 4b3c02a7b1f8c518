package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/servercert"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/xds"
)

// feed reads what each revision changed and pushes it: servers, keys, the policy
// and settings to every extauthz, and to Envoy only what no server's address is
// part of (listener, certificate, one cluster per upstream TLS profile).
//
// A new profile goes to Envoy before the server that uses it goes to extauthz:
// make before break. A profile that nobody uses any more stays for a while,
// since requests to it may be under way. A record that cannot be translated is
// pushed as a disabled server, and holds nothing else up.
type feed struct {
	cfg      Config
	xds      *xds.Server
	policies *policy.Keeper

	publishing sync.Mutex    // one publication to Envoy at a time, each from what holds now
	envoys     chan struct{} // an Envoy has connected
	listeners  listeners

	mu        sync.Mutex    // guards the rest
	revision  int64         // pushed
	begun     int64         // being pushed, or pushed
	changed   chan struct{} // closed and made anew when revision moves
	pair      servercert.Pair
	cas       map[string]string // server id -> bundle that verifies its upstream
	published map[string]bool   // bundles that Envoy was given
	fault     error             // why Envoy was not given the newest
	servers   map[string]bool   // ids pushed, to find what a reload must remove
	grace     []pushed          // revisions that replicas may still be behind
	duty      int64             // the newest that they may not
}

// pushed is when a revision was pushed.
type pushed struct {
	revision int64
	at       time.Time
}

const (
	pollEvery  = time.Second
	changesMax = 1000
	envoyWait  = 3 * time.Second
	pruneEvery = time.Minute
)

func newFeed(cfg Config, server *xds.Server, policies *policy.Keeper) *feed {
	return &feed{
		cfg: cfg, xds: server, policies: policies, changed: make(chan struct{}),
		cas: map[string]string{}, published: map[string]bool{}, servers: map[string]bool{},
		envoys:    make(chan struct{}, 1),
		listeners: newListeners(cfg.Gateway.OwnListeners),
	}
}

// run follows the store until ctx ends.
func (f *feed) run(ctx context.Context) error {
	notices := f.cfg.Store.Changed()
	ticker, prune := time.NewTicker(pollEvery), time.NewTicker(pruneEvery)
	defer ticker.Stop()
	defer prune.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-notices:
		case <-ticker.C:
		case <-f.envoys:
		case <-prune.C:
			f.report(f.publish(false))
		}
		if err := f.pushListeners(); err != nil {
			f.cfg.Slog.Error("pushing where Envoys listen", "error", err)
		}
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			f.cfg.Slog.Error("reading changes: what is pushed stays as it was", "error", err)
		}
	}
}

// load pushes everything: at the start, and when the changes since the last
// revision are not known any more.
func (f *feed) load(ctx context.Context) error {
	resources := []xds.Resource{f.settings()}
	seen := map[string]bool{}
	revision, err := f.cfg.Store.AllServers(ctx, func(srv store.Server) error {
		resource, err := f.server(ctx, srv)
		if err != nil {
			return err
		}
		resources = append(resources, resource)
		seen[srv.ID.String()] = true
		return nil
	})
	if err != nil {
		return err
	}
	// After the revision is known: what changes meanwhile comes with a later one.
	keys, err := f.keys(ctx)
	if err != nil {
		return err
	}
	policy, err := f.policy(ctx)
	if err != nil {
		return err
	}
	resources = append(resources, keys, policy)
	var removed []xds.Name
	f.mu.Lock()
	for id := range f.servers {
		if !seen[id] {
			removed = append(removed, xds.Name{Type: xds.TypeServer, Name: id})
		}
	}
	f.mu.Unlock()
	return f.push(ctx, revision, resources, removed)
}

// follow pushes what has changed since the last revision.
func (f *feed) follow(ctx context.Context) error {
	for {
		changes, err := f.cfg.Store.ChangesSince(ctx, f.at(), changesMax)
		if errors.Is(err, store.ErrGap) {
			return f.load(ctx)
		}
		if err != nil || len(changes) == 0 {
			return err
		}
		if err := f.pushChanges(ctx, changes); err != nil {
			return err
		}
	}
}

func (f *feed) pushChanges(ctx context.Context, changes []store.Change) error {
	var (
		resources []xds.Resource
		removed   []xds.Name
		done      = map[string]bool{}
	)
	for _, change := range changes {
		if done[change.Kind+change.Key] {
			continue
		}
		done[change.Kind+change.Key] = true
		switch change.Kind {
		case store.ChangeKeys:
			keys, err := f.keys(ctx)
			if err != nil {
				return err
			}
			resources = append(resources, keys)
		case store.ChangePolicy:
			policy, err := f.policy(ctx)
			if err != nil {
				return err
			}
			resources = append(resources, policy)
		case store.ChangeServer:
			id, err := identity.ParseServerID(change.Key)
			if err != nil {
				return fmt.Errorf("change %d: %w", change.Revision, err)
			}
			srv, err := f.cfg.Store.Server(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				removed = append(removed, xds.Name{Type: xds.TypeServer, Name: change.Key})
				continue
			}
			if err != nil {
				return err
			}
			resource, err := f.server(ctx, srv)
			if err != nil {
				return err
			}
			resources = append(resources, resource)
		default:
			return fmt.Errorf("change %d has the unknown kind %q", change.Revision, change.Kind)
		}
	}
	return f.push(ctx, changes[len(changes)-1].Revision, resources, removed)
}

// push publishes one revision: Envoy's part first, and confirmed, when a server
// needs a new cluster.
func (f *feed) push(ctx context.Context, revision int64, resources []xds.Resource, removed []xds.Name) error {
	f.pushEnvoy(ctx)
	f.mu.Lock()
	f.begun = revision // a replica may run it before SetFleet is back
	f.mu.Unlock()
	if err := f.xds.SetFleet(revision, resources, removed); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range resources {
		if r.Name.Type == xds.TypeServer {
			f.servers[r.Name.Name] = true
		}
	}
	for _, name := range removed {
		delete(f.servers, name.Name)
		delete(f.cas, name.Name)
	}
	f.revision = revision
	f.settle()
	f.grace = append(f.grace, pushed{revision, f.cfg.Now()})
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

func (f *feed) at() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// pushing is the newest revision that a replica can run.
func (f *feed) pushing() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// graceOf is how long replicas may be behind the settings: a third of a lease.
func graceOf(lease time.Duration) time.Duration { return lease / 3 }

// due is the revision that every replica must run by now: the newest that was
// pushed their grace ago. A replica that stays behind it loses its lease.
func (f *feed) due() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	return f.duty
}

// settle ends the grace of revisions. f.mu is held.
func (f *feed) settle() {
	for len(f.grace) > 0 && f.cfg.Now().Sub(f.grace[0].at) > graceOf(f.cfg.Lease) {
		f.duty, f.grace = f.grace[0].revision, f.grace[1:]
	}
}

// reached waits until a revision is pushed.
func (f *feed) reached(ctx context.Context, revision int64) error {
	for {
		f.mu.Lock()
		at, changed := f.revision, f.changed
		f.mu.Unlock()
		if at >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
