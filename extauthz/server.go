package extauthz

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/arbiter-gateway/arbiter/extauthz/resolve"
	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// Config is what an extauthz needs.
type Config struct {
	Replica  string                   // unique name among the replicas
	Control  grpc.ClientConnInterface // control's xDS socket
	Listener net.Listener             // for Envoy; closed by Run
	Records  io.Writer                // decision records, JSON lines
	Metrics  prometheus.Registerer
	Slog     *slog.Logger
	Now      func() time.Time // default time.Now
}

// Server is one extauthz: Check and Guard beside one Envoy.
type Server struct {
	authv3.UnimplementedAuthorizationServer
	procv3.UnimplementedExternalProcessorServer

	cfg       Config
	now       func() time.Time
	snapshot  atomic.Pointer[Snapshot]
	revoked   *revocation.Follower
	tokens    *resolve.Resolver
	headers   *headerCache
	addresses *upstream.Resolver
	streams   *streams
	bodies    bodies
	records   *recorder
	metrics   *metrics
}

// messageMost bounds one gRPC message from Envoy: the largest body that Envoy
// lets through whole, and its headers.
const messageMost = bodyCap + 1<<20

// New makes an extauthz that refuses everything until Run has heard control.
func New(cfg Config) (*Server, error) {
	if cfg.Replica == "" || cfg.Control == nil || cfg.Listener == nil || cfg.Records == nil || cfg.Metrics == nil || cfg.Slog == nil {
		return nil, errors.New("extauthz: replica, control, listener, records, metrics and slog are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	control := pb.NewControlClient(cfg.Control)
	s := &Server{
		cfg: cfg, now: cfg.Now, streams: newStreams(),
		headers: newHeaderCache(control), records: newRecorder(cfg.Records, control, cfg.Slog),
	}
	s.revoked = revocation.NewFollower(revocation.FollowerConfig{
		Client: control, Replica: cfg.Replica, Now: cfg.Now, Slog: cfg.Slog,
		Cut: s.streams.end, CutAll: s.streams.endEvery, Runs: s.runs,
	})
	var err error
	if s.addresses, err = upstream.New(upstream.Config{Networks: s.networks}); err != nil {
		return nil, err
	}
	s.tokens, err = resolve.New(resolve.Config{Control: control, Applied: func() int64 { return s.revoked.Set().Seq() }})
	if err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(s, cfg.Metrics); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return s, nil
}

// Run serves Envoy until ctx ends. It returns when every goroutine is gone.
func (s *Server) Run(ctx context.Context) error {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(s.recoverUnary), grpc.StreamInterceptor(s.recoverStream),
		grpc.MaxRecvMsgSize(messageMost),
		grpc.MaxConcurrentStreams(1<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 100 * time.Millisecond, PermitWithoutStream: true}),
	)
	authv3.RegisterAuthorizationServer(server, s)
	procv3.RegisterExternalProcessorServer(server, s)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.revoked.Run(ctx) })
	group.Go(func() error { return s.records.run(ctx) })
	group.Go(func() error { return s.addresses.Run(ctx) })
	group.Go(func() error {
		err := client.Run(ctx, client.Config{
			Conn: s.cfg.Control, Node: s.cfg.Replica, Apply: s.apply, Log: s.cfg.Slog,
			Types: []string{typeGateway, typeKeys, typeServer},
		})
		if errors.Is(err, context.Canceled) { // told to stop
			err = nil
		}
		return err
	})
	group.Go(func() error {
		if err := server.Serve(s.cfg.Listener); err != nil {
			return fmt.Errorf("serving Envoy: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		server.Stop() // every stream breaks: nothing goes on unguarded
		return nil
	})
	err := group.Wait()
	s.tokens.Close()
	return err
}

// apply takes one pushed update: built whole, then swapped; the streams of
// disabled servers end before control hears of it. A server that cannot be read
// accepts nothing; what came with it is applied all the same.
func (s *Server) apply(update client.Update) error {
	changes, err := changesOf(update)
	if err != nil {
		return err
	}
	next, ended, refused := s.snapshot.Load().with(changes)
	if next == nil {
		return refused
	}
	if update.Complete {
		next.Revision = max(next.Revision, update.Revision)
		next.loaded = next.loaded || update.Type == typeServer
	}
	s.snapshot.Store(next)
	keys := make([]revocation.Key, 0, len(ended))
	for _, id := range ended {
		keys = append(keys, revocation.Key{Kind: revocation.KindServer, Key: id.String()})
	}
	s.streams.end(keys...)
	return refused
}

// runs is the revision of the settings in use.
func (s *Server) runs() int64 {
	if snap := s.snapshot.Load(); snap != nil {
		return snap.Revision
	}
	return 0
}

// networks are the ranges that upstreams may be in, by the newest settings.
func (s *Server) networks() *upstream.Networks { return s.snapshot.Load().gateway.networks }

// Ready says why requests cannot be decided yet; nil when they can.
func (s *Server) Ready() error {
	switch {
	case !s.snapshot.Load().Ready():
		return errors.New("settings have not come from control")
	case !s.revoked.Alive():
		return errNoLease
	}
	return nil
}
