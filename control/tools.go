package control

import (
	"context"

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
	listed := make(map[string]store.ToolHash, len(in.GetTools()))
	for _, tool := range in.GetTools() {
		if len(tool.GetHash()) != len(store.ToolHash{}) || tool.GetName() == "" || len(tool.GetName()) > toolNameMost {
			return nil, status.Error(codes.InvalidArgument, "a tool has no name of a usable length, or no SHA-256")
		}
		if _, twice := listed[tool.GetName()]; twice {
			return nil, status.Error(codes.InvalidArgument, "a tool is there twice")
		}
		listed[tool.GetName()] = store.ToolHash(tool.GetHash())
	}
	seen, err := s.control.cfg.Store.SeeTools(ctx, id, listed)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	for _, name := range seen.New {
		s.control.toolsChanged.Inc()
		s.control.cfg.Slog.Warn("the definition of a tool has changed: look at it, then arbiter server approve-tools", "server", id, "tool", name)
	}
	return &pb.ToolsResponse{Changed: seen.Changed}, nil
}

// toolsChanged counts changes of tool definitions.
func toolsChanged(registry *prometheus.Registry) prometheus.Counter {
	return promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "arbiter_tool_definitions_changed_total",
		Help: "Tools that their server began to list with another definition than the approved one.",
	})
}
