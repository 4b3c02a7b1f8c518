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

	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/arbiter-gateway/arbiter/extauthz/resolve"
	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// Config is what an extauthz needs.
type Config struct {
	Replica  string                   // unique name among the replicas
	Control  grpc.ClientConnInterface // control's xDS socket: revocations and lookups
	Bulk     grpc.ClientConnInterface // the same on another connection: settings and records; default Control
	Listener net.Listener             // for Envoy; closed by Run
	Records  io.Writer                // decision records, JSON lines
	Metrics  prometheus.Registerer
	Slog     *slog.Logger
	Now      func() time.Time // default time.Now
	Clock    revocation.Clock // of the lease; default revocation.SystemClock
	// SeenFile keeps how far this machine has followed the revocation log, so
	// that an older copy of the database is not followed; "": not kept.
	SeenFile string
}

// Server is one extauthz: Check and Guard beside one Envoy.
type Server struct {
	procv3.UnimplementedExternalProcessorServer

	cfg       Config
	now       func() time.Time
	snapshot  atomic.Pointer[Snapshot]
	revoked   *revocation.Follower
	tokens    *resolve.Resolver
	headers   *headerCache
	tools     *definitions
	listIDs   *listIDs
	addresses *upstream.Resolver
	streams   *streams
	limits    limits
	bodies    bodies
	answers   bodies // of lists that Guard holds back until they are whole
	seen      *seenFile
	records   *recorder
	metrics   *metrics
}

// messageMost bounds one gRPC message from Envoy: the largest body that Envoy
// lets through whole, and its headers.
const messageMost = bodyCap + 1<<20

// checkWorkers are goroutines that answer one Check after another. A new one for
// each grows its stack twice in gRPC alone, a tenth of what a Check costs. When
// all are busy, with live streams for example, gRPC starts new ones as ever.
const checkWorkers = 64

// New makes an extauthz that refuses everything until Run has heard control.
func New(cfg Config) (*Server, error) {
	if cfg.Replica == "" || cfg.Control == nil || cfg.Listener == nil || cfg.Records == nil || cfg.Metrics == nil || cfg.Slog == nil {
		return nil, errors.New("extauthz: replica, control, listener, records, metrics and slog are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Bulk == nil {
		cfg.Bulk = cfg.Control
	}
	control, bulk := pb.NewControlClient(cfg.Control), pb.NewControlClient(cfg.Bulk)
	s := &Server{
		cfg: cfg, now: cfg.Now, streams: newStreams(),
		seen:    newSeenFile(cfg.SeenFile, cfg.Slog),
		headers: newHeaderCache(control), tools: newDefinitions(control), listIDs: newListIDs(),
		records: newRecorder(cfg.Records, bulk, cfg.Slog),
	}
	var err error
	if s.revoked, err = newFollower(s, control); err != nil {
		return nil, err
	}
	if s.addresses, err = upstream.New(upstream.Config{Networks: s.networks}); err != nil {
		return nil, err
	}
	s.tokens, err = resolve.New(resolve.Config{Control: control, Known: s.revoked.Known, Clock: s.revoked.Instant})
	if err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(s, cfg.Metrics); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return s, nil
}

func newFollower(s *Server, control pb.ControlClient) (*revocation.Follower, error) {
	cfg := revocation.FollowerConfig{
		Client: control, Replica: s.cfg.Replica, Clock: s.cfg.Clock, Slog: s.cfg.Slog,
		Cut: s.streams.end, CutAll: s.streams.endEvery,
	}
	if s.cfg.SeenFile != "" {
		var err error
		if cfg.Seen, err = revocation.ReadSeen(s.cfg.SeenFile); err != nil {
			return nil, err
		}
		cfg.Saw = s.seen.note
	}
	return revocation.NewFollower(cfg), nil
}

// Replica is its name among the replicas.
func (s *Server) Replica() string { return s.cfg.Replica }

// Run serves Envoy until ctx ends. It returns when every goroutine is gone.
func (s *Server) Run(ctx context.Context) error {
	server := grpc.NewServer(
		wire.Codec(),
		grpc.WaitForHandlers(true), // Stop comes back when nobody decides any more
		grpc.NumStreamWorkers(checkWorkers),
		grpc.UnaryInterceptor(s.recoverUnary), grpc.StreamInterceptor(s.recoverStream),
		grpc.MaxRecvMsgSize(messageMost),
		grpc.MaxConcurrentStreams(1<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 100 * time.Millisecond, PermitWithoutStream: true}),
	)
	wire.Register(server, s)
	procv3.RegisterExternalProcessorServer(server, s)

	recording, decided := context.WithCancel(context.WithoutCancel(ctx))
	defer decided()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.revoked.Run(ctx) })
	group.Go(func() error { return s.records.run(recording) })
	group.Go(func() error { return s.seen.run(ctx) })
	group.Go(func() error { return s.addresses.Run(ctx) })
	group.Go(func() error { return s.tools.run(ctx) })
	group.Go(func() error { return s.runStanding(ctx) })
	group.Go(func() error {
		err := client.Run(ctx, client.Config{
			Conn: s.cfg.Bulk, Node: s.cfg.Replica, Apply: s.apply, Log: s.cfg.Slog,
			Types: []string{typeGateway, typeKeys, typePolicy, typeServer},
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
		decided()
		return nil
	})
	err := group.Wait()
	s.tokens.Close()
	return err
}

// apply takes one pushed update: built whole, then swapped; the streams that may
// not go on by it end before control hears of it. A server that cannot be read
// accepts nothing; what came with it is applied all the same.
func (s *Server) apply(update client.Update) error {
	changes, err := changesOf(update)
	if err != nil {
		return err
	}
	next, refused := s.snapshot.Load().with(changes)
	if next == nil {
		return refused
	}
	if update.Complete {
		next.Revision = max(next.Revision, update.Revision)
		next.loaded = next.loaded || update.Type == typeServer
	}
	s.snapshot.Store(next.Snapshot)
	s.revoked.Settings(next.Revision, s.endStreams(next))
	if refused != nil {
		return &client.PartError{Err: refused} // it holds no revision back
	}
	return nil
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
