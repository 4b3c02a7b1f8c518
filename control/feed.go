package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/servercert"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/xds"
)

// feed reads what each revision changed and pushes it: servers, keys and
// settings to every extauthz, and to Envoy only what no server's address is
// part of (listener, certificate, one cluster per upstream TLS profile).
//
// A new profile goes to Envoy before the server that uses it goes to extauthz:
// make before break. A profile that nobody uses any more stays until a restart
// of control, since requests to it may be under way.
type feed struct {
	cfg Config
	xds *xds.Server

	mu       sync.Mutex // guards the rest
	revision int64
	changed  chan struct{} // closed and made anew when revision moves
	cas      map[string]bool
	profiles int // how many of cas Envoy was given
	pair     servercert.Pair
	servers  map[string]bool // ids pushed, to find what a reload must remove
}

const (
	pollEvery  = time.Second
	changesMax = 1000
	envoyWait  = 10 * time.Second
)

func newFeed(cfg Config, server *xds.Server) *feed {
	return &feed{
		cfg: cfg, xds: server, changed: make(chan struct{}),
		cas: map[string]bool{}, servers: map[string]bool{},
	}
}

// run follows the store until ctx ends.
func (f *feed) run(ctx context.Context) error {
	notices := f.cfg.Store.Changed()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-notices:
		case <-ticker.C:
		}
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			f.cfg.Slog.Error("reading changes: what is pushed stays as it was", "error", err)
		}
	}
}

// load pushes everything: at the start, and when the changes since the last
// revision are not known any more.
func (f *feed) load(ctx context.Context) error {
	keys, err := f.keys(ctx)
	if err != nil {
		return err
	}
	settings := xds.Resource{Name: xds.Name{Type: xds.TypeGateway, Name: "gateway"}, Body: f.gateway()}
	resources := []xds.Resource{settings, keys}
	seen := map[string]bool{}
	revision, err := f.cfg.Store.AllServers(ctx, func(srv store.Server) error {
		resource, err := f.server(srv)
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
	var removed []xds.Name
	for id := range f.servers {
		if !seen[id] {
			removed = append(removed, xds.Name{Type: xds.TypeServer, Name: id})
		}
	}
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
			resource, err := f.server(srv)
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
	for i := range resources {
		if resources[i].Revision == 0 {
			resources[i].Revision = revision
		}
	}
	if err := f.pushEnvoy(ctx); err != nil {
		return err
	}
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
	}
	f.revision = revision
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

// pushEnvoy gives Envoy the profiles that it does not have yet, and waits until
// it runs them. At the start there is no Envoy to wait for.
func (f *feed) pushEnvoy(ctx context.Context) error {
	f.mu.Lock()
	first, known := f.revision == 0, f.profiles == len(f.cas)
	f.profiles = len(f.cas)
	f.mu.Unlock()
	if known && !first {
		return nil
	}
	if err := f.setEnvoy(); err != nil || first {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, envoyWait)
	defer cancel()
	if err := f.xds.Applied(wait, 0); err != nil {
		f.cfg.Slog.Error("Envoy does not run the new configuration", "error", err)
	}
	return nil
}

func (f *feed) at() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
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

func (f *feed) setEnvoy() error {
	f.mu.Lock()
	state := f.cfg.Envoy
	state.Certificate, state.Key = f.pair.Certificate, f.pair.Key
	state.CAs = nil
	for ca := range f.cas {
		state.CAs = append(state.CAs, ca)
	}
	f.mu.Unlock()
	return f.xds.SetEnvoy(state)
}

func (f *feed) useCertificate(pair servercert.Pair) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pair = pair
}

func (f *feed) certificate() servercert.Pair {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pair
}

func (f *feed) replaceCertificate(pair servercert.Pair) error {
	old := f.certificate()
	f.useCertificate(pair)
	if err := f.setEnvoy(); err != nil {
		f.useCertificate(old)
		return err
	}
	return nil
}

func (f *feed) gateway() proto.Message {
	g := f.cfg.Gateway
	out := &pb.Gateway{
		BaseUrl: g.BaseURL, Hosts: g.Hosts,
		SessionSeconds:       int64(g.Session / time.Second),
		StreamsPerCredential: uint32(g.StreamsPerCredential),
		StreamMaxSeconds:     int64(g.StreamMost / time.Second),
		DecisionLogRequired:  g.RecordsRequired,
	}
	for _, prefix := range g.UpstreamNetworks {
		out.UpstreamNetworks = append(out.UpstreamNetworks, prefix.String())
	}
	for _, listener := range g.OwnListeners {
		out.OwnListeners = append(out.OwnListeners, listener.String())
	}
	return out
}

func (f *feed) keys(ctx context.Context) (xds.Resource, error) {
	keys, err := f.cfg.Store.Keys(ctx)
	if err != nil {
		return xds.Resource{}, err
	}
	out := &pb.Keys{TokenMac: keys.TokenMAC[:]}
	for _, k := range keys.Sessions {
		out.SessionKeys = append(out.SessionKeys, &pb.SessionKey{Id: k.ID, Key: k.Key[:]})
	}
	return xds.Resource{Name: xds.Name{Type: xds.TypeKeys, Name: "keys"}, Body: out}, nil
}

// server translates one server record, noting its authority.
func (f *feed) server(srv store.Server) (xds.Resource, error) {
	out := &pb.Server{
		Id: srv.ID.String(), Name: srv.Name, Enabled: srv.Enabled,
		Legacy: srv.Legacy, Modern: srv.Modern,
		AllowedOrigins: srv.AllowedOrigins, Labels: srv.Labels,
		MaxBody:          uint32(srv.Limits.MaxBody),
		CallLimitSeconds: uint32(srv.Limits.CallLimit / time.Second),
		Batches:          srv.Batches, LiteralDenials: srv.LiteralDenials,
		HeadersRevision: srv.HeadersRevision,
	}
	var err error
	if out.Mcp, err = f.upstream(srv.MCP, srv.CA); err != nil {
		return xds.Resource{}, fmt.Errorf("server %s: mcp: %w", srv.ID, err)
	}
	if out.Rpc, err = f.upstream(srv.RPC, srv.CA); err != nil {
		return xds.Resource{}, fmt.Errorf("server %s: rpc: %w", srv.ID, err)
	}
	return xds.Resource{Name: xds.Name{Type: xds.TypeServer, Name: out.GetId()}, Revision: srv.Revision, Body: out}, nil
}

func (f *feed) upstream(text, ca string) (*pb.Upstream, error) {
	if text == "" {
		return nil, nil
	}
	parsed, err := upstream.ParseURL(text)
	if err != nil {
		return nil, err
	}
	if parsed.TLS() && ca != "" {
		f.mu.Lock()
		f.cas[ca] = true
		f.mu.Unlock()
	}
	return &pb.Upstream{Url: text, Cluster: xds.ProfileName(parsed.TLS(), ca)}, nil
}
