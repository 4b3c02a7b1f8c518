package extauthz_test

import (
	"strings"
	"testing"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

const limited = `package policy

allow if true

limits contains {"by": ["principal", "tool"], "rate": 0.001, "burst": 2} if startswith(input.call.tool, "dear")

limits contains {"by": ["principal"], "rate": 0.002, "burst": 1} if input.call.method == "prompts/get"

limits contains {"by": ["server"], "rate": 0.001, "burst": 1} if input.action == "open_stream"
`

func TestPolicyLimits(t *testing.T) {
	srv, literal := newServer(), newServer(func(s *pb.Server) { s.LiteralDenials = true })
	f := newFixture(t, srv, literal)
	_, value := f.token(srv.GetId())
	_, second := f.token(srv.GetId())
	_, literally := f.token(literal.GetId())
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	other := guard.initialize(t, mcpCall(literal.GetId(), literally, initialize), "up")
	f.decideBy(limited)
	mcp := func(body string) request { return mcpCall(srv.GetId(), value, body).with("mcp-session-id", session) }
	rpc := func(body string) request { return rpcCall(srv.GetId(), value, body) }
	prompt := message("prompts/get", `{"name":"a"}`)
	get := mcp("").without("content-type")
	get.method = "GET"
	tooMany := "[" + toolCall("dear 3") + "," + toolCall("dear 3") + "," + toolCall("dear 3") + "]"
	const why = "this is called too often: the policy limits how often, and each replica of the gateway counts; try again in "
	f.checkRows(t, []row{
		{"the first", mcp(toolCall("dear")), 0, ""},
		{"the second, on /rpc", rpc(toolCall("dear")), 0, ""},
		{"the third", mcp(toolCall("dear")), 200, `"text":"` + why + `1000 s (request request-1)"}],"isError":true}}`},
		{"the third, on /rpc", rpc(toolCall("dear")), 429, `"id":"x","error":{"code":-31429,"message":"` + why + `1000 s","data":{"reason":"rate_limited","request_id":"request-1","retry_after":1000}}`},
		{"as a notification", mcp(notification(toolCall("dear"))), 202, ""},
		{"another tool", rpc(toolCall("dear too")), 0, ""},
		{"a tool without a limit", rpc(toolCall("cheap")), 0, ""},
		{"another principal", rpcCall(srv.GetId(), second, toolCall("dear")), 0, ""},
		{"more at once than may be", rpc(tooMany), 429, `[{"jsonrpc":"2.0","id":"x","error":{"code":-31429,"message":"this is more at once than the policy ever allows, 2: split the batch","data":{"reason":"rate_limited","request_id":"request-1"}}}`},
		{"which took nothing", rpc("[" + toolCall("dear 3") + "," + toolCall("dear 3") + "]"), 0, ""},
		{"a prompt", mcp(prompt), 0, ""},
		{"a prompt again", mcp(prompt), 200, `"error":{"code":-31429,"message":"` + why + `500 s","data":{"reason":"rate_limited"`},
		{"literally: a prompt", mcpCall(literal.GetId(), literally, prompt).with("mcp-session-id", other), 0, ""},
		{"literally: a prompt again", mcpCall(literal.GetId(), literally, prompt).with("mcp-session-id", other), 429, `-31429`},
		{"GET", get, 0, ""},
		{"GET again", get, 429, `"retry_after":1000`},
	})
	for _, tt := range []struct {
		in   request
		want string
	}{{rpc(toolCall("dear")), "1000"}, {rpc(tooMany), ""}, {get, "1000"}, {mcp(toolCall("dear")), ""}} {
		if got := headersOf(f.mustCheck(tt.in))["retry-after"]; got != tt.want {
			t.Errorf("%s %s: Retry-After is %q, want %q", tt.in.method, tt.in.path, got, tt.want)
		}
	}
	f.logged(`"reason":"rate_limited"`, 1)
	f.decideBy(strings.Replace(limited, "0.001", "0.003", 1))
	if status, body := outcome(f.mustCheck(rpc(toolCall("dear")))); status != 0 {
		t.Errorf("by another rate: %d %s", status, body)
	}
}

// A denied call takes nothing of a limit.
func TestPolicyLimitsCountWhatIsAllowed(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	f.decideBy(`package policy

allow if input.call.tool != "no"

limits contains {"by": ["principal"], "rate": 0.001, "burst": 1}
`)
	batch := "[" + toolCall("yes") + "," + strings.Replace(toolCall("no"), `"x"`, "2", 1) + "]"
	f.checkRows(t, []row{
		{"denied", rpcCall(srv.GetId(), value, toolCall("no")), 403, "no_rule"},
		{"denied in a batch", rpcCall(srv.GetId(), value, batch), 403, "no_rule"},
		{"allowed", rpcCall(srv.GetId(), value, toolCall("yes")), 0, ""},
		{"allowed again", rpcCall(srv.GetId(), value, toolCall("yes")), 429, "rate_limited"},
	})
}

// No policy has to think of Tools/Call: what some server might take for one of
// the protocol's methods is refused before it is asked.
func TestAmbiguousMethodsAreRefused(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	f.decideBy("package policy\n\nallow if not input.call.method == \"tools/call\"\n")
	for _, name := range []string{
		"Tools/Call", "tools/call ", " tools/call", `tools\u0000/call`, `tools\u200b/call`, "tools/ca\u2113l", "toolſ/call", "TOOLS/LIST", "taſks/get",
		"resources/Read", "notifications/Initialized", "tools\t/call",
	} {
		refused := name != "tools/ca\u2113l" // which folds to no l
		body := strings.Replace(message(strings.ReplaceAll(name, "\t", `\t`), `{"name":"echo"}`), "\t", `\t`, 1)
		status, answer := outcome(f.mustCheck(rpcCall(srv.GetId(), value, body)))
		if refused != (status == 400 && strings.Contains(answer, `"code":-32600`) && strings.Contains(answer, `"reason":"method_ambiguous"`)) {
			t.Errorf("%q: %d %s", name, status, answer)
		}
	}
	for _, name := range []string{"Ping", "Initialize", "Tools.Call", "call", "tools/call/x"} {
		if status, answer := outcome(f.mustCheck(rpcCall(srv.GetId(), value, message(name, `{}`)))); status != 0 {
			t.Errorf("%q: %d %s", name, status, answer)
		}
	}
}
