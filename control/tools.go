package control

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// Most of what one list of tools may hold.
const (
	toolsAtOnce  = 8192
	toolNameMost = 1024 // bytes
	toolTextMost = 16 << 10
)

// Tools implements pb.ControlServer: what a server lists is compared with what
// is remembered of it. A change is an alarm, said once.
func (s *service) Tools(ctx context.Context, in *pb.ToolsRequest) (*pb.ToolsResponse, error) {
	id, err := identity.ParseServerID(in.GetServerId())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if len(in.GetTools()) > toolsAtOnce {
		return nil, status.Error(codes.InvalidArgument, "too many tools at once")
	}
	listed := make(map[string]store.ToolDefinition, len(in.GetTools()))
	for _, tool := range in.GetTools() {
		if len(tool.GetHash()) != len(store.ToolHash{}) || tool.GetName() == "" ||
			len(tool.GetName()) > toolNameMost || len(tool.GetDefinition()) > toolTextMost {
			return nil, status.Error(codes.InvalidArgument, "a tool has no name or text of a usable length, or no SHA-256")
		}
		if _, twice := listed[tool.GetName()]; twice {
			return nil, status.Error(codes.InvalidArgument, "a tool is there twice")
		}
		listed[tool.GetName()] = store.ToolDefinition{Hash: store.ToolHash(tool.GetHash()), Text: string(tool.GetDefinition())}
	}
	seen, err := s.control.cfg.Store.SeeTools(ctx, id, listed)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	for _, name := range seen.New {
		s.control.toolsChanged.Inc()
		s.control.cfg.Slog.Warn("the definition of a tool has changed: look at it, then arbiter server approve-tools", "server", id, "tool", name)
	}
	if beyond := len(seen.Beyond) + int(in.GetLeftOut()); beyond > 0 && s.control.unwatched.begins(id) {
		s.control.toolsChanged.Inc()
		s.control.cfg.Slog.Warn("a server lists more tools than are remembered, or tools that cannot be compared: arbiter server forget-tools makes room", "server", id, "tools", beyond)
	}
	return &pb.ToolsResponse{Changed: append(seen.Changed, seen.Beyond...)}, nil
}

// unwatched are servers some of whose tools nobody watches. It is said once in
// an hour.
type unwatched struct {
	mu    sync.Mutex // guards since
	since map[identity.ServerID]time.Time
}

func (u *unwatched) begins(id identity.ServerID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.since, func(_ identity.ServerID, at time.Time) bool { return time.Since(at) > time.Hour })
	if _, said := u.since[id]; said {
		return false
	}
	if u.since == nil {
		u.since = map[identity.ServerID]time.Time{}
	}
	u.since[id] = time.Now()
	return true
}

// toolsChanged counts changes of tool definitions.
func toolsChanged(registry *prometheus.Registry) prometheus.Counter {
	return promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "arbiter_tool_definitions_changed_total",
		Help: "Tools that their server began to list with another definition than the approved one.",
	})
}
