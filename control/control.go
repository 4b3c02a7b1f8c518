package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/health"
	"github.com/arbiter-gateway/arbiter/internal/journal"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/servercert"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/xds"
)

// Config is what control needs.
type Config struct {
	Store     *store.Store
	StorePath string           // shown by doctor
	Journal   *journal.Journal // of the store's database
	Cert      *servercert.Source
	Gateway   Gateway
	Policies  policy.Source // nil: they come over the API alone
	Envoy     xds.State     // its CAs and certificate are filled in here
	Lease     time.Duration

	XDS   net.Listener // for Envoy and extauthz; closed by Run
	Admin net.Listener // API, health, metrics; closed by Run
	// Health is a second listener for /livez, /readyz and /metrics only; may
	// be nil.
	Health net.Listener

	Version      string
	EnvoyVersion string
	// Own is the name of the replica in this process, and RolesReady says why it
	// is not ready; both empty when extauthz runs in processes of its own, which
	// outlive this one.
	Own        string
	RolesReady func() error
	Registry   *prometheus.Registry
	Slog       *slog.Logger
	Now        func() time.Time // default time.Now
}

// Gateway is what holds for every server.
type Gateway struct {
	BaseURL              string
	Hosts                []string         // further Host values that are accepted
	UpstreamNetworks     []netip.Prefix   // empty: all but link-local and metadata addresses
	OwnListeners         []netip.AddrPort // but for those of Envoys, which say so themselves
	Session              time.Duration    // lifetime of a sealed session
	StreamsPerCredential int
	RecordsRequired      bool

	PolicyRequestHeaders  []string // that a policy sees, lower case
	PolicyUpstreamHeaders []string // that a policy may set, lower case; a client's own are removed
}

// Control is the role that holds the store.
type Control struct {
	cfg      Config
	xds      *xds.Server
	hub      *revocation.Hub
	policies *policy.Keeper
	feed     *feed
	routes   http.Handler
	health   http.Handler

	storeCheck   cachedCheck
	toolsChanged prometheus.Counter
	unwatched    unwatched

	mu         sync.Mutex // guards journalErr
	journalErr error
}

// New loads what the store holds and checks that Envoy's configuration can be
// made from it.
func New(ctx context.Context, cfg Config) (*Control, error) {
	if cfg.Store == nil || cfg.Journal == nil || cfg.Cert == nil || cfg.XDS == nil || cfg.Admin == nil || cfg.Registry == nil || cfg.Slog == nil {
		return nil, errors.New("control: store, journal, certificate, listeners, registry and slog are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Control{cfg: cfg, toolsChanged: toolsChanged(cfg.Registry)}
	var err error
	if c.xds, err = xds.New(xds.Config{Log: cfg.Slog, Entered: func() { c.feed.entered() }}); err != nil {
		return nil, err
	}
	if err := cfg.Journal.Begin(ctx, cfg.Store); err != nil {
		return nil, err // a restored database, for one
	}
	roster := &roster{store: cfg.Store, own: cfg.Own}
	listed, longest, err := roster.listed(ctx)
	if err != nil {
		return nil, err
	}
	c.hub = revocation.NewHub(revocation.HubConfig{
		Log: cfg.Store, Roster: roster, Listed: listed, Lease: cfg.Lease, Now: cfg.Now,
		Pushed: func() int64 { return c.feed.pushing() }, Due: func() int64 { return c.feed.due() }, Grace: graceOf(cfg.Lease),
		Refusals: c.xds.Refusals,
	})
	pair, err := cfg.Cert.Pair()
	if err != nil {
		return nil, err
	}
	c.policies, err = policy.New(ctx, policy.Config{
		Store: cfg.Store, Source: cfg.Policies, Registry: cfg.Registry, Log: cfg.Slog, Now: cfg.Now,
		CompileMost: graceOf(cfg.Lease) / 2,
	})
	if err != nil {
		return nil, err
	}
	c.feed = newFeed(cfg, c.xds, c.policies)
	c.feed.useCertificate(pair)
	if err := c.feed.load(ctx); err != nil {
		return nil, err
	}
	keys, err := cfg.Store.Keys(ctx)
	if err != nil {
		return nil, err
	}
	handler, err := api.New(api.Config{
		Store: cfg.Store, Fleet: c, Policies: c.policies, TokenMAC: keys.TokenMAC, Status: c.status, Log: cfg.Slog, Now: cfg.Now,
		RevokeWait: max(longest, graceOf(cfg.Lease)+cfg.Lease) + 10*time.Second,
	})
	if err != nil {
		return nil, err
	}
	c.health = health.Routes(c.Problems, cfg.Registry)
	c.routes = c.adminRoutes(handler)
	return c, nil
}

// Run serves until ctx ends. It returns when every goroutine is gone.
func (c *Control) Run(ctx context.Context) error {
	server := grpc.NewServer(xds.ServerOptions()...)
	c.xds.Register(server)
	pb.RegisterControlServer(server, &service{control: c})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.feed.run(ctx) })
	group.Go(func() error { return c.policies.Run(ctx) })
	group.Go(func() error { return c.wakeHub(ctx) })
	group.Go(func() error { return c.keepHouse(ctx) })
	group.Go(func() error {
		return c.cfg.Cert.Watch(ctx, c.feed.certificate(), c.feed.replaceCertificate)
	})
	group.Go(func() error {
		if err := server.Serve(c.cfg.XDS); err != nil {
			return fmt.Errorf("serving xDS: %w", err)
		}
		return nil
	})
	group.Go(func() error { return health.Serve(ctx, c.cfg.Admin, c.routes, withPeer) })
	if c.cfg.Health != nil {
		group.Go(func() error { return health.Serve(ctx, c.cfg.Health, c.health, nil) })
	}
	group.Go(func() error {
		<-ctx.Done()
		server.Stop()
		return nil
	})
	return group.Wait()
}

// wakeHub carries the store's notices to the revocation streams and the journal,
// and looks by itself every second: another process may write too. A database
// that was put back to an older state ends control.
func (c *Control) wakeHub(ctx context.Context) error {
	notices := c.cfg.Store.Changed()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-notices:
		case <-ticker.C:
		}
		c.hub.Wake()
		err := c.follow(ctx)
		if _, restored := errors.AsType[*journal.RestoredError](err); restored {
			return err
		}
	}
}

// follow brings the journal up to the store.
func (c *Control) follow(ctx context.Context) error {
	err := c.cfg.Journal.Follow(ctx, c.cfg.Store)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.cfg.Slog.Error("noting what was ended outside the database", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journalErr = err
	return err
}

// journalFault says why the journal does not have what the store has.
func (c *Control) journalFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.journalErr
}

// keepHouse drops revocation entries and recorded argument values whose time
// has passed, and tokens that expired long ago.
func (c *Control) keepHouse(ctx context.Context) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := c.hub.Sweep(ctx); err != nil {
			c.cfg.Slog.Warn("striking off replicas that are gone", "error", err)
		}
		if _, err := c.cfg.Store.DropRevocations(ctx, c.cfg.Now()); err != nil {
			c.cfg.Slog.Warn("dropping old revocation entries", "error", err)
		}
		if _, err := c.cfg.Store.DropExpiredTokens(ctx, c.cfg.Now().Add(-store.KeepExpiredTokens)); err != nil {
			c.cfg.Slog.Warn("dropping tokens that expired long ago", "error", err)
		}
		if _, err := c.cfg.Store.DropArguments(ctx, c.cfg.Now()); err != nil {
			c.cfg.Slog.Warn("dropping argument values whose time is over", "error", err)
		}
	}
}

// Applied implements api.Fleet.
func (c *Control) Applied(ctx context.Context, revision int64) error {
	if err := c.feed.reached(ctx, revision); err != nil {
		return err
	}
	return c.xds.Applied(ctx, revision)
}

// Confirmed implements api.Fleet. Settings are waited for from their push on.
func (c *Control) Confirmed(ctx context.Context, change revocation.Change) (revocation.Result, error) {
	c.hub.Wake()
	if err := c.feed.reached(ctx, change.Revision); err != nil {
		return revocation.Result{}, err
	}
	// The change is committed and carried out whatever the journal says; but what
	// the journal does not have would come back with an older database.
	noted := c.follow(ctx)
	result, err := c.hub.Confirmed(ctx, change)
	return result, errors.Join(err, noted)
}
