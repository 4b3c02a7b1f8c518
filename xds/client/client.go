// Package client follows what control pushes to an extauthz: a delta xDS client
// for resources of our own types.
//
// It is a leaf: it knows gRPC and the discovery protocol, and nothing of what
// the resources mean. It trusts the server it was given a connection to.
package client

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

// Config is what Run needs. All fields are required.
type Config struct {
	Conn  grpc.ClientConnInterface
	Node  string   // id of this replica; the server has one stream per node
	Types []string // type URLs to follow, each as a whole
	// Apply takes one update. An error refuses it: the server is told the
	// error's text, and sends the same resources again with the next change;
	// until they are taken no update has a revision. A *PartError says that what
	// could be was taken, and holds no revision back. Calls are one after the
	// other. An update may repeat what was applied.
	Apply func(Update) error
	Log   *slog.Logger
}

// Update is a part of the difference to what was applied before. A large one
// comes in several updates.
type Update struct {
	Type    string // type URL
	Changed []Resource
	Removed []string // names
	// Complete says that everything of this type up to Revision has been sent.
	// The first complete update of a type ends its start, also with nothing in it.
	Complete bool
	// Revision is what all types together are at once this update is applied; 0:
	// none, as some of it is still to come, or was refused.
	Revision int64
}

// PartError refuses a part of an update: the rest of it was applied, and what
// was refused does no harm.
type PartError struct{ Err error }

func (e *PartError) Error() string { return e.Err.Error() }

func (e *PartError) Unwrap() error { return e.Err }

// Resource is one resource as it is now.
type Resource struct {
	Name    string
	Version string
	Body    *anypb.Any
}

// The pause before a new attempt, jittered by half.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// maxMessage is the largest message taken from the server, which keeps to
// about 1 MiB.
const maxMessage = 16 << 20

// Run follows the server until ctx ends, and returns the context's error. It
// connects again by itself, and says what it has, so that only the difference
// comes.
func Run(ctx context.Context, c Config) error {
	if c.Conn == nil || c.Node == "" || len(c.Types) == 0 || c.Apply == nil || c.Log == nil {
		return errors.New("xds client: a field of Config is missing")
	}
	f := follower{Config: c, versions: map[string]map[string]string{}, reached: newReached(len(c.Types))}
	for _, typeURL := range c.Types {
		f.versions[typeURL] = map[string]string{}
	}
	pause := firstPause
	for {
		healthy, err := f.stream(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if healthy {
			pause = firstPause
		}
		c.Log.Warn("stream from control ended", "reason", err, "retry_in", pause)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, lastPause)
	}
}

// follower remembers, over streams, which version of each resource was applied.
type follower struct {
	Config
	versions map[string]map[string]string // by type and name
	reached  *reached                     // on this stream
}

// stream runs one stream to its end. It reports whether anything came.
func (f *follower) stream(ctx context.Context) (healthy bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.reached = newReached(len(f.Types)) // what was refused is sent again
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(f.Conn).
		DeltaAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(maxMessage), grpc.WaitForReady(false))
	if err != nil {
		return false, err
	}
	for _, typeURL := range f.Types {
		err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{
			Node:                    &corev3.Node{Id: f.Node, Cluster: "extauthz"},
			TypeUrl:                 typeURL,
			ResourceNamesSubscribe:  []string{"*"},
			InitialResourceVersions: f.versions[typeURL],
		})
		if err != nil {
			break // Recv knows why
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return healthy, err
		}
		if !healthy {
			f.Log.Info("following control", "revision", r.GetSystemVersionInfo())
			healthy = true
		}
		if err := stream.Send(f.take(r)); err != nil {
			continue // Recv knows why
		}
	}
}

// take applies a message and makes the answer to it.
func (f *follower) take(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	if err := f.apply(r); err != nil {
		f.Log.Error("change from control refused", "type", r.GetTypeUrl(), "reason", err)
		code := codes.InvalidArgument
		if _, part := errors.AsType[*PartError](err); part {
			code = codes.DataLoss // as xds knows it: the rest was taken
		}
		answer.ErrorDetail = &status.Status{Code: int32(code), Message: err.Error()}
	}
	return answer
}

func (f *follower) apply(r *discoveryv3.DeltaDiscoveryResponse) error {
	has, followed := f.versions[r.GetTypeUrl()]
	if !followed {
		return errors.New("type was not asked for")
	}
	update := Update{Type: r.GetTypeUrl(), Removed: r.GetRemovedResources()}
	for _, resource := range r.GetResources() {
		if resource.GetResource().GetTypeUrl() != r.GetTypeUrl() {
			f.reached.lost = true
			return errors.New("a resource has another type than its message")
		}
		update.Changed = append(update.Changed, Resource{
			Name: resource.GetName(), Version: resource.GetVersion(), Body: resource.GetResource(),
		})
	}
	if info := r.GetSystemVersionInfo(); info != "" {
		revision, err := strconv.ParseInt(info, 10, 64)
		if err != nil {
			f.reached.lost = true
			return errors.New("system_version_info is not a revision")
		}
		update.Complete, update.Revision = true, f.reached.with(update, revision)
	}
	err := f.Apply(update)
	_, part := errors.AsType[*PartError](err)
	f.reached.note(update, err != nil && !part)
	if err != nil {
		return err
	}
	for _, resource := range update.Changed {
		has[resource.Name] = resource.Version
	}
	for _, name := range update.Removed {
		delete(has, name)
	}
	return nil
}
