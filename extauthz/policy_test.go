package extauthz_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// sayings is a policy that says of each tool what its name asks for.
const sayings = `package policy

allow if true

deny contains {"code": "too_late", "message": "come back tomorrow"} if asked_for("late")

deny contains {"code": "a_first", "message": "this comes first"} if asked_for("twice")

deny contains {"code": "b_second", "message": "and this"} if asked_for("twice")

deny contains {"code": "kept_quiet", "message": "nobody is told this"} if hide

scopes_needed := {"tools:call:late", "spoken of"} if asked_for("late")

scopes_needed := {"told"} if asked_for("told")

deny contains {"code": "told", "message": "needs the scope told"} if asked_for("told")

hide if asked_for("secret")

asked_for(name) if input.call.tool == name
asked_for(name) if input.call.prompt == name
asked_for(name) if endswith(input.call.resource, name)
asked_for(name) if input.call.ref.name == name
asked_for(name) if input.call.task == name
asked_for(name) if input.call.method == name
asked_for(name) if {
	not input.call.method
	input.action == name
}
`

func message(method, params string) string {
	return `{"jsonrpc":"2.0","id":"x","method":"` + method + `","params":` + params + `}`
}

func toolCall(name string) string { return message("tools/call", `{"name":"`+name+`"}`) }

func notification(body string) string { return strings.Replace(body, `"id":"x",`, "", 1) }

func TestPolicyDenialsSayWhyAndWhatWouldHelp(t *testing.T) {
	srv, literal := newServer(), newServer(func(s *pb.Server) { s.LiteralDenials = true })
	f := newFixture(t, srv, literal)
	_, value := f.token(srv.GetId())
	_, literally := f.token(literal.GetId())
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "")
	other := guard.initialize(t, mcpCall(literal.GetId(), literally, initialize), "")
	f.decideBy(sayings)
	in := func(body string) request { return mcpCall(srv.GetId(), value, body).with("mcp-session-id", session) }
	f.checkRows(t, []row{
		{"another tool", in(toolCall("echo")), 0, ""},
		{"a tool", in(toolCall("late")), 200, `"text":"come back tomorrow; scopes that would help: spoken of, tools:call:late (request request-1)"}],"isError":true}}`},
		{"what its text says already", in(toolCall("told")), 200, `"text":"needs the scope told (request request-1)"`},
		{"two reasons", in(toolCall("twice")), 200, `"text":"this comes first; and this (request request-1)"`},
		{"a prompt", in(message("prompts/get", `{"name":"late"}`)), 200, `"error":{"code":-31403,"message":"come back tomorrow","data":{"reason":"too_late","request_id":"request-1","scopes":["spoken of","tools:call:late"]}}`},
		{"the first of two codes", in(message("prompts/get", `{"name":"twice"}`)), 200, `"message":"this comes first; and this","data":{"reason":"a_first"`},
		{"a notification", in(notification(toolCall("late"))), 202, ""},
		{"/rpc", rpcCall(srv.GetId(), value, toolCall("late")), 403, `"id":"x","error":{"code":-31403,"message":"come back tomorrow","data":{"reason":"too_late"`},
		{"literally", mcpCall(literal.GetId(), literally, toolCall("late")).with("mcp-session-id", other), 403, `"data":{"reason":"too_late"`},
	})
	if got := headersOf(f.mustCheck(in(toolCall("late"))))["arbiter-decision"]; got != "deny" {
		t.Errorf("arbiter-decision is %q", got)
	}
}

func TestPolicyTellsSixHundredReasonsInShort(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	f.decideBy(`package policy

deny contains {"code": sprintf("c%d", [n]), "message": message} if {
	some n in numbers.range(1, 30)
	message := concat("", [sprintf("%d", [n]), sprintf("%0400d", [0])])
}
`)
	_, body := outcome(f.mustCheck(rpcCall(srv.GetId(), value, toolCall("echo"))))
	if len(body) > 3000 || !strings.Contains(body, "; 26 more reasons") {
		t.Errorf("%d bytes: %s", len(body), body)
	}
}

// What is hidden is answered as a server answers that has never heard of it,
// whatever the transport and the server's denials; nothing tells of a policy.
func TestPolicyHides(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.Batches = true })
	literal := newServer(func(s *pb.Server) { s.LiteralDenials = true })
	f := newFixture(t, srv, literal)
	_, value := f.token(srv.GetId())
	_, literally := f.token(literal.GetId())
	guard := f.dial()
	batches := guard.initialize(t, mcpCall(srv.GetId(), value, strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)), "")
	other := guard.initialize(t, mcpCall(literal.GetId(), literally, initialize), "")
	f.decideBy(sayings)
	in := func(body string) request { return mcpCall(srv.GetId(), value, body).with("mcp-session-id", batches) }
	fault := func(code int, text string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","error":{"code":%d,"message":%q}}`, code, text)
	}
	const refused = `{"jsonrpc":"2.0","id":"y","error":{"code":-31403,"message":"nothing of this batch was passed on: one of its messages is refused"}}`
	batch := "[" + strings.Replace(toolCall("echo"), `"x"`, `"y"`, 1) + "," + initialized + "," + toolCall("secret") + "]"
	hiddenTool := fault(-32602, "Unknown tool: secret")
	for _, tt := range []struct {
		name string
		in   request
		body string
	}{
		{"a tool", in(toolCall("secret")), hiddenTool},
		{"a tool, literally", mcpCall(literal.GetId(), literally, toolCall("secret")).with("mcp-session-id", other), hiddenTool},
		{"a tool on /rpc", rpcCall(srv.GetId(), value, toolCall("secret")), hiddenTool},
		{"a prompt", in(message("prompts/get", `{"name":"secret"}`)), fault(-32602, "Unknown prompt: secret")},
		{"a resource", in(message("resources/read", `{"uri":"file:///secret"}`)), fault(-32602, "Resource not found: file:///secret")},
		{"a subscription", in(message("resources/subscribe", `{"uri":"file:///secret"}`)), fault(-32602, "Resource not found: file:///secret")},
		{"a completion", in(message("completion/complete", `{"ref":{"type":"ref/prompt","name":"secret"}}`)), fault(-32602, "Unknown prompt: secret")},
		{"a resource's completion", in(message("completion/complete", `{"ref":{"type":"ref/resource","uri":"secret"}}`)), fault(-32602, "Resource not found: secret")},
		{"a task", in(message("tasks/get", `{"taskId":"secret"}`)), fault(-32602, "Task not found: secret")},
		{"a method", in(message("secret", `{}`)), fault(-32601, "Method not found")},
		{"a tool in a batch", in(batch), "[" + refused + "," + hiddenTool + "]"},
		{"a tool in a batch on /rpc", rpcCall(srv.GetId(), value, batch), "[" + refused + "," + hiddenTool + "]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if status, body := outcome(f.mustCheck(tt.in)); status != 200 || body != tt.body {
				t.Errorf("answered %d %s\nwant 200 %s", status, body, tt.body)
			}
		})
	}
	for _, in := range []request{in(notification(toolCall("secret"))), rpcCall(srv.GetId(), value, notification(toolCall("secret")))} {
		if status, body := outcome(f.mustCheck(in)); status != 202 || body != "" {
			t.Errorf("a notification on %s: %d %s", in.path, status, body)
		}
	}
	long := strings.Repeat("é", 1000)
	f.decideBy("package policy\n\nhide if true\n")
	status, body := outcome(f.mustCheck(in(toolCall(long))))
	if status != 200 || len(body) > 1200 || strings.Contains(body, "no_rule") {
		t.Errorf("a long name: %d with %d bytes", status, len(body))
	}
	if _, body := outcome(f.mustCheck(mcpCall(srv.GetId(), value, initialize))); !strings.Contains(body, "-31403") {
		t.Errorf("who may not connect is told %s", body)
	}
}

// A policy that gives no clear answer is the gateway's fault: never an allow,
// never a denial.
func TestPolicyFaultsAreErrors(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	for i, tt := range []struct{ name, rego string }{
		{"two rules that contradict each other", "allow := true if input.call.tool\n\nallow := false if input.call.method"},
		{"a wrong type", `allow := "true" if input.call.tool`},
		{"an error in a function", `allow if to_number(input.call.tool) > 0`},
		{"a denial that is none", "allow if true\n\ndeny contains input.call.tool"},
		{"a header that nobody listed", "allow if true\n\nheaders := {\"x-team\": \"a\"}"},
		{"a header of the gateway's own", "allow if true\n\nheaders := {\"x-arbiter-principal-id\": \"root\"}"},
		{"the bare prefix", "allow if true\n\nheaders := {\"x-arbiter-policy-\": \"root\"}"},
		{"a limit that is none", "allow if true\n\nlimits contains {\"by\": [\"moon\"], \"rate\": 1, \"burst\": 1}"},
		{"too slow", "allow if sum([z | some x in numbers.range(1, 5000); some y in numbers.range(1, 5000); z := x * y]) > count(input.call.tool)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.decideBy("package policy\n\n" + tt.rego + "\n")
			out, err := f.check(rpcCall(srv.GetId(), value, toolCall("echo")))
			if status.Code(err) != codes.Unavailable {
				t.Errorf("answered %v %v", out, err)
			}
			f.logged(`"outcome":"error"`, i+1)
		})
	}
}

// logged waits until the decision log says something n times.
func (f *fixture) logged(what string, n int) {
	f.t.Helper()
	f.eventually(what+" is recorded", func() bool { return strings.Count(f.records.String(), what) >= n })
}

// anyPolicy draws a policy: nothing at all, everything, and much in between that
// could make an answer look another way.
func anyPolicy(rt *rapid.T) string {
	word := rapid.StringMatching(`[a-z]{1,8}`)
	condition := rapid.OneOf(
		rapid.SampledFrom([]string{
			"true", "input.principal.id", "input.server.id", "input.principal.server != input.server.id", "not input.call", "input.time > 0",
			"to_number(input.principal.id) > 0", // an error, when it is asked
		}),
		rapid.Custom(func(rt *rapid.T) string { return "input.call.tool != \"" + word.Draw(rt, "tool") + "\"" }),
	)
	rule := rapid.Custom(func(rt *rapid.T) string {
		said := rapid.SampledFrom([]string{
			"allow", "allow", "allow", "hide", "scopes_needed contains %q", "deny contains {\"code\": %q, \"message\": \"no\"}",
			"headers[\"x-arbiter-policy-team\"] := %q", "headers[%q] := \"x\"", "limits contains {\"by\": [\"server\"], \"rate\": 0.01, \"burst\": 1, \"x\": %q}",
		}).Draw(rt, "what")
		if strings.Contains(said, "%q") {
			said = fmt.Sprintf(said, word.Draw(rt, "word"))
		}
		return said + " if " + condition.Draw(rt, "if")
	})
	all := "package policy\n\nallow if true\n"
	if rapid.IntRange(0, 3).Draw(rt, "allow-all") == 0 {
		return all
	}
	return "package policy\n\nhide if false\n\n" + strings.Join(rapid.SliceOfN(rule, 0, 6).Draw(rt, "rules"), "\n\n") + "\n"
}

// asked is how many questions the policy was asked.
func (f *fixture) asked() (n uint64) {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "arbiter_policy_seconds" {
			n += family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return n
}

// Whatever a policy says, a token of one server is nothing on another: no policy
// is asked, and the answer is, byte for byte, the one to a token that nobody
// made.
func TestPolicyCannotWidenACredential(t *testing.T) {
	srv, other := newServer(), newServer()
	f := newFixture(t, srv, other)
	_, value := f.token(srv.GetId())
	nobody := token.New(token.Access, macKey).Reveal()
	rapid.Check(t, func(rt *rapid.T) {
		f.decideBy(anyPolicy(rt))
		body := rapid.SampledFrom([]string{toolsList, initialize, toolCall("echo"), "[" + toolsList + "]", "{", ""}).Draw(rt, "body")
		in := rapid.SampledFrom([]func(string, string, string) request{rpcCall, mcpCall}).Draw(rt, "transport")
		before := f.asked()
		got, want := f.mustCheck(in(other.GetId(), value, body)), f.mustCheck(in(other.GetId(), nobody, body))
		if status, text := outcome(got); status != 401 || !proto.Equal(got, want) {
			rt.Errorf("on another server: %d %s\n%v, nobody's: %v", status, text, got, want)
		}
		if asked := f.asked(); asked != before {
			rt.Errorf("the policy was asked %d times", asked-before)
		}
		_, _ = f.check(rpcCall(srv.GetId(), value, toolsList)) // on its own server it is
		if f.asked() != before+1 {
			rt.Error("nobody counts what the policy is asked")
		}
	})
}

// Every decision comes of one whole policy, also while another is swapped in.
func TestPolicySwapUnderLoad(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	policy := func(n int) string {
		return fmt.Sprintf("package policy\n\nallow if true\n\nheaders := {\"x-arbiter-policy-a\": \"%d\", \"x-arbiter-policy-b\": \"%d\"}\n", n, n)
	}
	f.decideBy(policy(0))
	stop, ended := make(chan struct{}), make(chan error, 4)
	for range cap(ended) {
		go func() {
			allowed := 0
			for {
				select {
				case <-stop:
					if allowed == 0 {
						ended <- fmt.Errorf("no request was decided: %w", f.faults.last())
						return
					}
					ended <- nil
					return
				default:
				}
				out, err := f.check(rpcCall(srv.GetId(), value, toolCall("echo")))
				if err != nil {
					continue // too slow on a busy machine: no decision
				}
				allowed++
				if h := headersOf(out); h["x-arbiter-policy-a"] == "" || h["x-arbiter-policy-a"] != h["x-arbiter-policy-b"] {
					ended <- fmt.Errorf("half a policy: %v", h)
					return
				}
			}
		}()
	}
	for n := range 30 {
		f.decideBy(policy(n + 1))
	}
	close(stop)
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if got := headersOf(f.mustCheck(rpcCall(srv.GetId(), value, toolCall("echo"))))["x-arbiter-policy-a"]; got != "30" {
		t.Errorf("decided by policy %s after all were confirmed", got)
	}
}
