package control_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/control"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// logged is a log that a test reads while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// tool is a definition of one byte, as a replica reports it.
func tool(name string, b byte) *pb.ToolDefinition {
	return &pb.ToolDefinition{Name: name, Hash: append([]byte{b}, make([]byte, 31)...)}
}

func (f *fixture) lists(server identity.ServerID, tools ...*pb.ToolDefinition) []string {
	f.t.Helper()
	out, err := f.control.Tools(f.t.Context(), &pb.ToolsRequest{ServerId: server.String(), Tools: tools})
	if err != nil {
		f.t.Fatal(err)
	}
	return out.GetChanged()
}

// TestChangedToolsAreAnAlarm: said once per change, and pushed to replicas only
// where the server denies them.
func TestChangedToolsAreAnAlarm(t *testing.T) {
	log := &logged{}
	f := newFixture(t, func(c *control.Config) { c.Slog = slog.New(slog.NewTextHandler(log, nil)) })
	to := &follower{servers: map[string]*pb.Server{}}
	f.follow(to)
	srv, err := f.store.CreateServer(t.Context(), newServer("one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	f.lists(srv.ID, tool("echo", 1), tool("add", 1))
	for range 2 {
		if got := f.lists(srv.ID, tool("echo", 2), tool("add", 1)); !slices.Equal(got, []string{"echo"}) {
			t.Fatalf("changed: %q", got)
		}
	}
	if n := log.count("the definition of a tool has changed"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if !strings.Contains(f.get("/api/v1/status"), `"waiting_tools": 1`) {
		t.Error("the status does not say so")
	}
	if !strings.Contains(f.get("/metrics"), "arbiter_tool_definitions_changed_total 1") {
		t.Error("it is not counted")
	}
	changed := func() []string { return to.server(srv.ID.String()).GetChangedTools() }
	revised, err := f.store.UpdateServer(t.Context(), srv.ID, func(s *store.Server) error {
		if len(changed()) > 0 {
			t.Error("a server that only raises alarms has changed tools pushed")
		}
		s.ToolChanges = store.ToolChangesDeny
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.eventually("the changed tool is pushed", func() bool { return slices.Equal(changed(), []string{"echo"}) })
	if _, _, err := f.store.ApproveTools(t.Context(), revised.ID, nil); err != nil {
		t.Fatal(err)
	}
	f.eventually("the approval is pushed", func() bool { return len(changed()) == 0 })
}

// TestToolsThatNobodyWatchesAreAnAlarm: said once, however often they come.
func TestToolsThatNobodyWatchesAreAnAlarm(t *testing.T) {
	log := &logged{}
	f := newFixture(t, func(c *control.Config) { c.Slog = slog.New(slog.NewTextHandler(log, nil)) })
	srv, err := f.store.CreateServer(t.Context(), newServer("one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.control.Tools(t.Context(), &pb.ToolsRequest{ServerId: srv.ID.String(), LeftOut: 2, Tools: []*pb.ToolDefinition{tool("a", 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := log.count("tools that cannot be compared"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestToolsRefuses(t *testing.T) {
	f := newFixture(t, nil)
	id := identity.NewServerID().String()
	many := make([]*pb.ToolDefinition, 8193)
	for name, in := range map[string]*pb.ToolsRequest{
		"no server":           {ServerId: "x"},
		"a hash that is none": {ServerId: id, Tools: []*pb.ToolDefinition{{Name: "a", Hash: []byte{1}}}},
		"no name":             {ServerId: id, Tools: []*pb.ToolDefinition{tool("", 1)}},
		"a name without end":  {ServerId: id, Tools: []*pb.ToolDefinition{tool(strings.Repeat("a", 1025), 1)}},
		"a text without end":  {ServerId: id, Tools: []*pb.ToolDefinition{{Name: "a", Hash: make([]byte, 32), Definition: make([]byte, 16<<10+1)}}},
		"one tool twice":      {ServerId: id, Tools: []*pb.ToolDefinition{tool("a", 1), tool("a", 2)}},
		"too many":            {ServerId: id, Tools: many},
	} {
		if _, err := f.control.Tools(t.Context(), in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
