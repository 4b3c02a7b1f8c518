package extauthz_test

import (
	"errors"
	"strings"
	"testing"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// TestChangedToolIsDeniedWhereTheServerSaysSo: the model hears nothing of the
// new definition, and the tool cannot be called until somebody approves it.
func TestChangedToolIsDeniedWhereTheServerSaysSo(t *testing.T) {
	strict := newServer(func(s *pb.Server) { s.DenyChangedTools, s.ChangedTools = true, []string{"echo"} })
	lax := newServer(func(s *pb.Server) { s.ChangedTools = []string{"echo"} })
	f := newFixture(t, strict, lax)
	f.control.tools([]string{"echo"}, nil)
	call := func(srv *pb.Server, tool string) (int, string) {
		_, value := f.token(srv.GetId())
		session := f.dial().initialize(t, mcpCall(srv.GetId(), value, initialize), "")
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `"}}`
		return outcome(f.mustCheck(mcpCall(srv.GetId(), value, body).with("mcp-session-id", session)))
	}
	if status, body := call(strict, "echo"); status != 200 || !strings.Contains(body, `"isError":true`) || !strings.Contains(body, "has changed since it was approved") {
		t.Errorf("the changed tool: %d %s", status, body)
	}
	if status, body := call(strict, "add"); status != 0 {
		t.Errorf("another tool: %d %s", status, body)
	}
	if status, body := call(lax, "echo"); status != 0 {
		t.Errorf("the changed tool of a server that only raises alarms: %d %s", status, body)
	}
	without := strings.Replace(threeTools, `{"name":"echo"},`, "", 1)
	if got := newLister(t, f, strict, "mcp:connect", "tools:call").open(t, jsonMedia).through(threeTools); got != without {
		t.Errorf("listed %s", got)
	}
	if got := newLister(t, f, lax, "mcp:connect", "tools:call").open(t, jsonMedia).through(threeTools); got != threeTools {
		t.Errorf("a server that only raises alarms lists %s", got)
	}
	approved := newServer(func(s *pb.Server) { s.Id, s.DenyChangedTools = strict.GetId(), true })
	f.change(approved)
	f.control.tools(nil, nil)
	if status, body := call(approved, "echo"); status != 0 {
		t.Errorf("after the approval: %d %s", status, body)
	}
}

// TestChangedToolIsNotTriedOnAPolicy: who may not use the tool at all hears the
// policy's reason, and nothing of its definition.
func TestChangedToolIsNotTriedOnAPolicy(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.DenyChangedTools, s.ChangedTools = true, []string{"echo"} })
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId(), "mcp:connect")
	session := f.dial().initialize(t, mcpCall(srv.GetId(), value, initialize), "")
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`
	if _, got := outcome(f.mustCheck(mcpCall(srv.GetId(), value, body).with("mcp-session-id", session))); strings.Contains(got, "definition") || !strings.Contains(got, "needs the scope") {
		t.Errorf("answered %s", got)
	}
}

// TestNoListWithoutControlWhereChangedToolsAreDenied: nobody could tell.
func TestNoListWithoutControlWhereChangedToolsAreDenied(t *testing.T) {
	strict := newServer(func(s *pb.Server) { s.DenyChangedTools = true })
	lax := newServer()
	f := newFixture(t, strict, lax)
	f.control.tools(nil, errors.New("away"))
	if got := newLister(t, f, strict).open(t, jsonMedia).through(threeTools); strings.Contains(got, "echo") || !strings.Contains(got, "-31503") {
		t.Errorf("answered %s", got)
	}
	if got := newLister(t, f, lax).open(t, jsonMedia).through(threeTools); got != echoOnly {
		t.Errorf("a server that only raises alarms: %s", got)
	}
}

// TestStreamOfAChangedToolEnds: what may not be called any more does not go on.
func TestStreamOfAChangedToolEnds(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.DenyChangedTools = true })
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "")
	live := func(tool string) *guarded {
		return f.streaming(t, mcpCall(srv.GetId(), value, toolCall(tool)).with("mcp-session-id", session))
	}
	echo, add := live("echo"), live("add")
	changed := newServer(func(s *pb.Server) { s.Id, s.DenyChangedTools, s.ChangedTools = srv.GetId(), true, []string{"echo"} })
	f.push(nil, nil, []*pb.Server{changed})
	echo.cut("the stream of the changed tool")
	live("add").finish() // begins after the change, beside the one that goes on
	add.finish()
}
