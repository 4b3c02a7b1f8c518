package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/health"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/servercert"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/xds"
)

// Config is what control needs.
type Config struct {
	Store     *store.Store
	StorePath string // shown by doctor
	Cert      *servercert.Source
	Gateway   Gateway
	Envoy     xds.State // its CAs and certificate are filled in here
	Lease     time.Duration

	XDS   net.Listener // for Envoy and extauthz; closed by Run
	Admin net.Listener // API, health, metrics; closed by Run
	// Health is a second listener for /livez, /readyz and /metrics only; may
	// be nil.
	Health net.Listener

	Version      string
	EnvoyVersion string
	// RolesReady says why extauthz in this process is not ready; nil when it
	// runs in processes of its own, which outlive this one.
	RolesReady func() error
	Registry   *prometheus.Registry
	Slog       *slog.Logger
	Now        func() time.Time // default time.Now
}

// Gateway is what holds for every server.
type Gateway struct {
	BaseURL              string
	Hosts                []string       // further Host values that are accepted
	UpstreamNetworks     []netip.Prefix // empty: all but link-local and metadata addresses
	OwnListeners         []netip.AddrPort
	Session              time.Duration // lifetime of a sealed session
	StreamsPerCredential int
	RecordsRequired      bool
}

// Control is the role that holds the store.
type Control struct {
	cfg    Config
	xds    *xds.Server
	hub    *revocation.Hub
	feed   *feed
	routes http.Handler
	health http.Handler

	storeCheck cachedCheck
	outlived   time.Duration // longest lease that earlier controls gave
}

// New loads what the store holds and checks that Envoy's configuration can be
// made from it.
func New(ctx context.Context, cfg Config) (*Control, error) {
	if cfg.Store == nil || cfg.Cert == nil || cfg.XDS == nil || cfg.Admin == nil || cfg.Registry == nil || cfg.Slog == nil {
		return nil, errors.New("control: store, certificate, listeners, registry and slog are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	pusher, err := xds.New(xds.Config{Log: cfg.Slog})
	if err != nil {
		return nil, err
	}
	c := &Control{cfg: cfg, xds: pusher}
	outlived, err := cfg.Store.NoteLease(ctx, cfg.Lease)
	if err != nil {
		return nil, err
	}
	c.outlived = outlived
	if cfg.RolesReady != nil {
		outlived = 0
	}
	c.hub = revocation.NewHub(revocation.HubConfig{Log: cfg.Store, Lease: cfg.Lease, Now: cfg.Now, Slog: cfg.Slog, Outlived: outlived, Due: func() int64 { return c.feed.due() }})
	pair, err := cfg.Cert.Pair()
	if err != nil {
		return nil, err
	}
	c.feed = newFeed(cfg, c.xds)
	c.feed.useCertificate(pair)
	if err := c.feed.load(ctx); err != nil {
		return nil, err
	}
	keys, err := cfg.Store.Keys(ctx)
	if err != nil {
		return nil, err
	}
	handler, err := api.New(api.Config{
		Store: cfg.Store, Fleet: c, TokenMAC: keys.TokenMAC, Status: c.status, Log: cfg.Slog, Now: cfg.Now,
		RevokeWait: outlived + cfg.Lease + 10*time.Second,
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
	group.Go(func() error { return c.wakeHub(ctx) })
	group.Go(func() error { return c.keepHouse(ctx) })
	group.Go(func() error { return c.settleLease(ctx) })
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

// wakeHub carries the store's notices to the revocation streams, and looks by
// itself every second: another process may write too.
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
	}
}

// settleLease forgets the leases of earlier controls when they are over.
func (c *Control) settleLease(ctx context.Context) error {
	timer := time.NewTimer(c.outlived)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	if err := c.cfg.Store.SettleLease(ctx, c.cfg.Lease); err != nil && ctx.Err() == nil {
		c.cfg.Slog.Warn("noting the lease: the next start may wait longer than it has to", "error", err)
	}
	return nil
}

// keepHouse drops revocation entries whose time has passed, and tokens that
// expired long ago.
func (c *Control) keepHouse(ctx context.Context) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := c.cfg.Store.DropRevocations(ctx, c.cfg.Now()); err != nil {
			c.cfg.Slog.Warn("dropping old revocation entries", "error", err)
		}
		if _, err := c.cfg.Store.DropExpiredTokens(ctx, c.cfg.Now().Add(-store.KeepExpiredTokens)); err != nil {
			c.cfg.Slog.Warn("dropping tokens that expired long ago", "error", err)
		}
	}
}

// Applied implements api.Fleet.
func (c *Control) Applied(ctx context.Context, revision int64) error {
	if err := c.feed.reached(ctx, revision); err != nil {
		return err
	}
	if err := c.xds.Applied(ctx, revision); err != nil {
		return err
	}
	return c.caughtUp(ctx, revision)
}

// caughtUp waits for replicas that are not connected now and still hold a
// lease, of an earlier control too: they go on deciding by an older revision.
func (c *Control) caughtUp(ctx context.Context, revision int64) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		behind := map[string]bool{}
		for _, r := range c.hub.Replicas() {
			behind[r.Name] = true
		}
		for _, node := range c.xds.Replicas() {
			if node.Revision >= revision {
				delete(behind, node.Node)
			}
		}
		if len(behind) == 0 && c.hub.Complete() {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for replicas that still hold a lease (%d known): %w", len(behind), ctx.Err())
		}
	}
}

// Confirmed implements api.Fleet.
func (c *Control) Confirmed(ctx context.Context, seq int64) revocation.Result {
	return c.hub.Confirmed(ctx, seq)
}
