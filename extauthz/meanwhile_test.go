package extauthz_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/extauthz"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// waits has a server whose requests wait for control after the policy was asked.
// What change does in that time is confirmed before Check goes on.
func (f *fixture) waits(srv *pb.Server, change func()) {
	f.control.mu.Lock()
	defer f.control.mu.Unlock()
	f.control.headers[srv.GetId()] = &pb.UpstreamHeadersResponse{HeadersRevision: srv.GetHeadersRevision()}
	f.control.meanwhile = change
}

// onEcho is a policy that has one rule for the tool echo.
func onEcho(rule string) string {
	return "package policy\n\n" + rule + " if input.call.tool == \"echo\"\n"
}

// What is confirmed while Check waits holds for this request: nothing leaves by
// the policy, the grants or the tools of before.
func TestCheckAllowsByWhatHoldsWhenItAllows(t *testing.T) {
	const grant = `[{"principal":{},"tools":["%s"]}]`
	for _, row := range []struct {
		name   string
		change func(*fixture, *pb.Server)
		want   string
	}{
		{"a policy that says nothing", func(f *fixture, _ *pb.Server) { f.decideBy("package policy\n\nhide := false\n") }, `"reason":"no_rule"`},
		{"a policy that denies", func(f *fixture, _ *pb.Server) {
			f.decideBy(onEcho(`deny contains {"code": "closed", "message": "come back tomorrow"}`))
		}, `"reason":"closed"`},
		{"grants", func(f *fixture, srv *pb.Server) {
			srv.Grants = fmt.Appendf(nil, grant, "other")
			f.change(srv)
		}, `"reason":"`},
		{"a tool that changed", func(f *fixture, srv *pb.Server) {
			srv.DenyChangedTools, srv.ChangedTools = true, []string{"echo"}
			f.change(srv)
		}, `"reason":"tool_changed"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := newServer(func(s *pb.Server) { s.HeadersRevision, s.Grants = 1, fmt.Appendf(nil, grant, "echo") })
			f := newFixture(t, srv)
			_, value := f.token(srv.GetId())
			in := rpcCall(srv.GetId(), value, toolCall("echo"))
			f.waits(srv, func() { row.change(f, srv) })
			if status, body := outcome(f.mustCheck(in)); status != 403 || !strings.Contains(body, row.want) {
				t.Errorf("answered %d %s", status, body)
			}
			f.logged(`"outcome":"deny"`, 1)
			if lines := f.records.String(); strings.Contains(lines, `"outcome":"allow"`) {
				t.Errorf("recorded as %s", lines)
			}
		})
	}
}

// What a policy sets for the upstream, limits and says for the record is that of
// the last one, and a limit counts a request once.
func TestCheckKeepsNothingOfThePolicyBefore(t *testing.T) {
	const limit = "\n\nlimits contains {\"by\": [\"server\"], \"rate\": 0.001, \"burst\": 2}\n"
	srv := newServer(func(s *pb.Server) { s.HeadersRevision = 1 })
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	in := rpcCall(srv.GetId(), value, toolCall("echo"))
	f.decideBy("package policy\n\nallow := true\n\nheaders := {\"x-arbiter-policy-a\": \"old\", \"x-arbiter-policy-b\": \"old\"}" + limit)
	f.waits(srv, func() {
		f.decideBy("package policy\n\nallow := true\n\nheaders := {\"x-arbiter-policy-b\": \"new\"}" + limit)
	})
	set := headersOf(f.mustCheck(in))
	if _, kept := set["x-arbiter-policy-a"]; kept || set["x-arbiter-policy-b"] != "new" {
		t.Errorf("the upstream is told %v", set)
	}
	r := f.recorded(1)[0]
	if r.Result == nil || len(r.Result.Headers) != 1 || r.Outcome != "allow" {
		t.Errorf("the record has %+v", r.Result)
	}
	f.checkRows(t, []row{{"the second of two", in, 0, ""}, {"the third", in, 429, "rate_limited"}})
}

// What decides may change each time that a request is decided: it is not
// followed for ever, and not allowed.
func TestCheckEndsWhenWhatDecidesKeepsChanging(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.HeadersRevision = 1 })
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	times := 0
	f.waits(srv, func() {
		times++
		f.control.mu.Lock()
		f.control.headers[srv.GetId()] = &pb.UpstreamHeadersResponse{HeadersRevision: srv.GetHeadersRevision()}
		f.control.mu.Unlock()
		srv.HeadersRevision++
		srv.Labels = map[string]string{"n": fmt.Sprint(times)}
		f.change(srv)
	})
	out, err := f.check(rpcCall(srv.GetId(), value, toolCall("echo")))
	if status.Code(err) != codes.Unavailable || !errors.Is(f.faults.last(), extauthz.ErrChanging) || times != 4 {
		t.Errorf("after %d times: %v %v, %v", times, out, err, f.faults.last())
	}
}
