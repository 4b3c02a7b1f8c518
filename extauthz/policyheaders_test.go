package extauthz_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/extauthz"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/policies"
)

// openTo has a gateway whose policies see and set headers, before its policy.
func (f *fixture) openTo(seen, set []string, rego string) {
	f.t.Helper()
	settings := gateway()
	settings.PolicyRequestHeaders, settings.PolicyUpstreamHeaders = seen, set
	f.push(settings, nil, nil)
	f.decideBy(rego)
}

func TestPolicySetsHeadersForTheUpstream(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.HeadersRevision = 1 })
	f := newFixture(t, srv)
	f.control.mu.Lock()
	f.control.headers[srv.GetId()] = &pb.UpstreamHeadersResponse{
		HeadersRevision: 1, Headers: []*pb.Header{{Name: "X-Upstream-Key", Value: "of the server"}},
	}
	f.control.mu.Unlock()
	_, value := f.token(srv.GetId())
	f.openTo(nil, []string{"x-team", "x-upstream-key", "x-unset"}, `package policy

allow if true

headers := {"x-team": input.call.tool, "x-upstream-key": "of the policy", "x-arbiter-policy-tier": "gold"} if input.call.tool
`)
	in := rpcCall(srv.GetId(), value, toolCall("blue")).with("x-team", "root").with("x-unset", "root")
	out := f.mustCheck(in)
	last := map[string]string{} // each line replaces what was there
	for _, option := range out.GetOkResponse().GetHeaders() {
		last[option.GetHeader().GetKey()] = option.GetHeader().GetValue()
	}
	for name, want := range map[string]string{"x-team": "blue", "x-arbiter-policy-tier": "gold", "x-upstream-key": "of the server", "x-unset": ""} {
		if last[name] != want {
			t.Errorf("%s is %q, want %q", name, last[name], want)
		}
	}
	removed := out.GetOkResponse().GetHeadersToRemove()
	if !slices.Contains(removed, "x-unset") || slices.Contains(removed, "x-team") || slices.Contains(removed, "x-upstream-key") {
		t.Errorf("removed %q: a caller's own go, what was set stays", removed)
	}
	in.body = toolsList // of which the policy says nothing
	removed = f.mustCheck(in).GetOkResponse().GetHeadersToRemove()
	for _, name := range []string{"x-team", "x-unset"} {
		if !slices.Contains(removed, name) {
			t.Errorf("removed %q: a caller could say %s for the policy", removed, name)
		}
	}
	in.body = "[" + toolCall("blue") + "," + toolsList + "," + strings.Replace(toolCall("blue"), `"x"`, "2", 1) + "]"
	if status, body := outcome(f.mustCheck(in)); status != 0 {
		t.Errorf("a batch that agrees: %d %s", status, body)
	}
}

// A header that a policy may not set, or sets to two values, is the policy's
// fault; what says so holds nothing of a call, of which a policy can make names.
func TestHeaderFaultsAreThePolicysAndHoldNoArgument(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	one := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":"canary"}}}`
	for i, row := range []struct{ rule, body, want string }{
		{`headers[input.call.arguments.a] := "x"`, one, "policy_upstream_headers"},
		{`headers[concat("-", ["x", input.call.arguments.a])] := "x"`, one, "policy_upstream_headers"},
		{`headers["x-team"] := input.call.arguments.a`, "[" + one + "," + strings.ReplaceAll(one, "canary", "canary2") + "]", "two values"},
		{`headers["x-arbiter-principal-id"] := input.call.arguments.a`, one, "policy_upstream_headers"},
	} {
		f.openTo(nil, []string{"x-team"}, "package policy\n\nallow if true\n\n"+row.rule+"\n")
		out, err := f.check(rpcCall(srv.GetId(), value, row.body))
		for again := 0; errors.Is(f.faults.last(), policies.ErrDeadline) && again < 20; again++ { // a busy machine
			out, err = f.check(rpcCall(srv.GetId(), value, row.body))
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v %v", row.rule, out, err)
		}
		said, isPolicys := errors.AsType[*extauthz.PolicyFault](f.faults.last())
		if !isPolicys || strings.Contains(said.Error(), "canary") || !strings.Contains(said.Error(), row.want) {
			t.Errorf("%s: the log says %v", row.rule, f.faults.last())
		}
		f.logged(`"outcome":"error"`, i+1)
	}
	if log := f.records.String(); strings.Contains(log, "canary") || strings.Count(log, `"detail":"policy `) < 4 {
		t.Errorf("records are %s", log)
	}
}

const tellsRequest = `package policy

deny contains {"code": "told", "message": json.marshal(input.request)} if true
`

func TestPolicySeesTheRequest(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	f.openTo([]string{"x-team", "user-agent"}, nil, tellsRequest)
	in := rpcCall(srv.GetId(), value, toolCall("echo"))
	said := func(in request) string {
		t.Helper()
		_, body := outcome(f.mustCheck(in))
		_, body, _ = strings.Cut(body, `"message":"`)
		body, _, _ = strings.Cut(body, `","data"`)
		return strings.ReplaceAll(body, `\"`, `"`)
	}
	want := `{"host":"localhost:8443","method":"POST","path":"/servers/` + srv.GetId() + `/rpc","source":"192.0.2.1"}`
	if got := said(in.with("x-other", "a")); got != want {
		t.Errorf("without the named ones a policy sees %s\nwant %s", got, want)
	}
	want = `{"headers":{"user-agent":["?"],"x-team":["a","b"]},` + want[1:]
	if got := said(in.with("x-team", "a").with("user-agent", "\xff").with("x-team", "b")); got != want {
		t.Errorf("a policy sees %s\nwant %s", got, want)
	}
	if status, body := outcome(f.mustCheck(in.with("x-team", strings.Repeat("x", 4<<10)))); status != 431 || !strings.Contains(body, "request_headers_too_long") {
		t.Errorf("too long: %d %s", status, body)
	}
}
