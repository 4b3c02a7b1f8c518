package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/arbiter-gateway/arbiter/control"
	"github.com/arbiter-gateway/arbiter/envoy"
	"github.com/arbiter-gateway/arbiter/extauthz"
	"github.com/arbiter-gateway/arbiter/internal/journal"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/servercert"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/xds"
)

// configFlags are what every role's command takes.
type configFlags struct {
	Config string `env:"ARBITER_CONFIG" placeholder:"FILE" help:"Configuration, YAML (${env}); each key also as ARBITER_KEY. An unknown key stops the start."`
}

// roles builds the parts of one process from one set of settings.
type roles struct {
	p        *program
	instance instance
	settings *settings
	registry *prometheus.Registry
	slog     *slog.Logger
	closers  []func()
}

func (p *program) newRoles(flags configFlags, which instance) (*roles, error) {
	if err := which.check(); err != nil {
		return nil, err
	}
	s, err := readSettings(flags.Config, os.Environ())
	if err != nil {
		return nil, err
	}
	if err := p.prepareData(which); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &roles{
		p: p, instance: which, settings: s, registry: registry,
		slog: slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: s.LogLevel})),
	}, nil
}

func (r *roles) close() {
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.closers[i]()
	}
}

// hold takes a lock until close.
func (r *roles) hold(name string) error {
	release, err := r.p.lock(name)
	if err == nil {
		r.closers = append(r.closers, release)
	}
	return err
}

// control opens the store and makes the role. own is the extauthz of this
// process; it may be nil.
func (r *roles) control(own *extauthz.Server, envoyVersion string) (*control.Control, error) {
	if err := r.hold(lockFile); err != nil {
		return nil, err
	}
	key, err := r.p.storeKey()
	if err != nil {
		return nil, err
	}
	opened, err := store.Open(r.p.ctx, store.Config{Path: r.p.file(databaseFile), Key: key, Now: r.p.now})
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() {
		if err := opened.Close(); err != nil {
			r.slog.Error("closing the store", "error", err)
		}
	})
	past, err := r.journal(opened)
	if err != nil {
		return nil, err
	}
	cert, err := r.certificate()
	if err != nil {
		return nil, err
	}
	cfg := control.Config{
		Store: opened, Journal: past, StorePath: r.p.file(databaseFile), Cert: cert, Lease: r.settings.Lease,
		Version: version(), EnvoyVersion: envoyVersion, Registry: r.registry, Slog: r.slog, Now: r.p.now,
	}
	if own != nil {
		cfg.Own, cfg.RolesReady = own.Replica(), own.Ready
	}
	if cfg.Envoy, err = r.envoyState(); err != nil {
		return nil, err
	}
	cfg.Gateway = r.gateway()
	if cfg.Policies, err = r.policySource(own != nil); err != nil {
		return nil, err
	}
	if cfg.XDS, err = r.p.listenUnix(xdsSocket); err != nil {
		return nil, err
	}
	if cfg.Admin, err = r.p.listenUnix(adminSocket); err != nil {
		return nil, err
	}
	if r.settings.AdminListen != "" {
		if cfg.Health, err = net.Listen("tcp", r.settings.AdminListen); err != nil {
			return nil, fmt.Errorf("admin_listen: %w", err)
		}
		cfg.Gateway.OwnListeners = append(cfg.Gateway.OwnListeners, addrPort(cfg.Health.Addr()))
	}
	return control.New(r.p.ctx, cfg)
}

// journal opens what control remembers of its database outside of it.
func (r *roles) journal(of *store.Store) (*journal.Journal, error) {
	at, err := of.Position(r.p.ctx)
	if err != nil {
		return nil, err
	}
	opened, err := journal.Open(r.p.data, at.Database)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() {
		if err := opened.Close(); err != nil {
			r.slog.Error("closing the journal", "error", err)
		}
	})
	return opened, nil
}

func addrPort(addr net.Addr) netip.AddrPort { return addr.(*net.TCPAddr).AddrPort() }

func (r *roles) certificate() (*servercert.Source, error) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	base, err := url.Parse(r.settings.BaseURL)
	if err != nil {
		return nil, err
	}
	if name := base.Hostname(); name != "localhost" && name != "127.0.0.1" && name != "::1" {
		hosts = append(hosts, name)
	}
	return servercert.New(servercert.Config{
		CertFile: r.settings.TLSCert, KeyFile: r.settings.TLSKey, Dir: r.p.data, Hosts: hosts, Now: r.p.now, Slog: r.slog,
	})
}

func (r *roles) gateway() control.Gateway {
	s := r.settings
	return control.Gateway{
		BaseURL: s.BaseURL, Hosts: s.Hosts, UpstreamNetworks: s.UpstreamNetworks,
		OwnListeners: []netip.AddrPort{s.Listen}, Session: s.Session,
		StreamsPerCredential: s.StreamsPerCredential, RecordsRequired: s.RecordsRequired,
		PolicyRequestHeaders: s.Policy.RequestHeaders, PolicyUpstreamHeaders: s.Policy.UpstreamHeaders,
	}
}

func (r *roles) envoyState() (xds.State, error) {
	roots, err := envoy.SystemRoots()
	if err != nil {
		return xds.State{}, err
	}
	interval, timeout := revocation.Keepalive(r.settings.Lease)
	return xds.State{
		TLS12: r.settings.TLS12, SystemRoots: roots,
		ProxyProtocol: r.settings.ProxyProtocol, ProxyHops: r.settings.ProxyHops,
		Times: xds.Times{
			KeepaliveInterval: interval, KeepaliveTimeout: timeout, StreamMax: r.settings.StreamMost,
		},
	}, nil
}

// extauthz makes the role beside one Envoy.
func (r *roles) extauthz() (*extauthz.Server, error) {
	socket := r.instance.of(extauthzSocket)
	if err := r.hold(socket + ".lock"); err != nil {
		return nil, err
	}
	listener, err := r.p.listenUnix(socket)
	if err != nil {
		return nil, err
	}
	control, err := r.connect()
	if err != nil {
		return nil, err
	}
	bulk, err := r.connect() // so that a lease never waits behind settings or records
	if err != nil {
		return nil, err
	}
	records := &lumberjack.Logger{Filename: r.p.file(r.instance.of(decisionsFile)), MaxSize: 64 /* MiB */, MaxBackups: 4}
	r.closers = append(r.closers, func() {
		if err := records.Close(); err != nil {
			r.slog.Error("closing the decision log", "error", err)
		}
	})
	return extauthz.New(extauthz.Config{
		Replica: replicaName(r.instance.role("extauthz")), Control: control, Bulk: bulk, Listener: listener, Records: records, Metrics: r.registry, Slog: r.slog, Now: r.p.now,
		SeenFile: r.p.file(r.instance.of(seenFile)),
	})
}

// connect makes a connection to control's xDS socket.
func (r *roles) connect() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+r.p.file(xdsSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithConnectParams(reconnect()),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to control: %w", err)
	}
	r.closers = append(r.closers, func() { _ = conn.Close() }) // nothing is left to lose
	return conn, nil
}

// reconnect finds a control that was away within a second; the default waits up
// to two minutes.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: time.Second,
	}
}

// replicaName is unique for the life of this process: role, host, nonce.
func replicaName(role string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var nonce [4]byte
	rand.Read(nonce[:])
	return role + "-" + host + "-" + hex.EncodeToString(nonce[:])
}

// envoy makes the runner of one Envoy, whose bootstrap names the sockets of the
// data directory, its place, and nothing else.
func (r *roles) envoy(path string) (*envoy.Runner, error) {
	admin, file := r.instance.of(envoyAdminSocket), r.p.file(r.instance.of(envoyBootstrap))
	if err := r.hold(admin + ".lock"); err != nil {
		return nil, err
	}
	if err := portFree(r.settings.Listen); err != nil {
		return nil, err
	}
	place, err := xds.Place{Listen: r.settings.Listen, Extauthz: r.p.file(r.instance.of(extauthzSocket))}.Metadata()
	if err != nil {
		return nil, err
	}
	bootstrap, err := envoy.Bootstrap(envoy.Config{
		Node: replicaName(r.instance.role("envoy")), Metadata: place, XDSSocket: r.p.file(xdsSocket), AdminSocket: r.p.file(admin),
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		return nil, fmt.Errorf("writing Envoy's bootstrap: %w", err)
	}
	return envoy.NewRunner(envoy.RunnerConfig{
		Path: path, BootstrapFile: file, AdminSocket: r.p.file(admin), Concurrency: r.settings.EnvoyConcurrency, Log: r.slog,
	})
}

// portFree finds out that another program listens on a port. Envoy itself would
// share it with that program without a word.
func portFree(at netip.AddrPort) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at.String())
	if err != nil {
		return fmt.Errorf("%s cannot be listened on (%w): stop what uses it, or set ARBITER_LISTEN", at, err)
	}
	return listener.Close()
}
