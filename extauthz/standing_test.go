package extauthz_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

const sse = "text/event-stream"

// streaming is the answer to a POST on /mcp, a stream.
func (f *fixture) streaming(t *testing.T, in request) *guarded {
	t.Helper()
	g := f.dial().answer(t, in, false, ":status", "200", "content-type", sse)
	if out := g.recv(); out.GetResponseHeaders() == nil {
		t.Fatalf("the stream did not open: %v", out)
	}
	return g
}

// cut expects the end of a stream.
func (g *guarded) cut(what string) {
	g.t.Helper()
	if got := g.recv().GetImmediateResponse().GetDetails(); got != "credential_ended" {
		g.t.Errorf("%s was cut with %q", what, got)
	}
	g.finish()
}

// confirmed waits until a change is confirmed and says how many streams it ended.
func (f *fixture) confirmed(what revocation.Key) int64 {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result, err := f.hub.Confirmed(ctx, revocation.Change{Revision: f.revision.Load(), What: what})
	if err != nil || result.Confirmed != 1 {
		f.t.Errorf("confirmed by %d: %v", result.Confirmed, err)
	}
	return result.StreamsEnded
}

const denies = `package policy

allow if true

deny contains {"code": "no", "message": "no"} if `

// Every live stream is decided again by a new policy, by what opened it.
func TestPolicyChangeEndsStreams(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.Batches = true })
	f := newFixture(t, srv)
	settings := gateway()
	settings.StreamsPerCredential = 100
	f.push(settings, nil, nil)
	_, value := f.token(srv.GetId())
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)), "up")
	in := func(body string) request { return mcpCall(srv.GetId(), value, body).with("mcp-session-id", session) }
	long := `{"name":"echo","arguments":{"a":"` + strings.Repeat("x", 3000) + `"}}`
	kinds := map[string]func() *guarded{
		"get":  func() *guarded { return f.listening(t, srv, value) },
		"echo": func() *guarded { return f.streaming(t, in(toolCall("echo"))) },
		"short": func() *guarded {
			return f.streaming(t, in(message("tools/call", `{"name":"echo","arguments":{"a":"x"}}`)))
		},
		"long":  func() *guarded { return f.streaming(t, in(message("tools/call", long))) },
		"batch": func() *guarded { return f.streaming(t, in("["+toolsList+","+toolCall("other")+"]")) },
		"ping":  func() *guarded { return f.streaming(t, in(message("ping", "{}"))) },
		"init":  func() *guarded { return f.streaming(t, mcpCall(srv.GetId(), value, initialize)) },
	}
	for _, tt := range []struct {
		name, when string // of the denial
		ends       []string
	}{
		{"nothing", "false", nil},
		{"no stream may be opened", `input.action == "open_stream"`, []string{"get"}},
		{"a tool", `input.call.tool == "echo"`, []string{"echo", "short", "long"}},
		{"one of a batch", `input.call.tool == "other"`, []string{"batch"}},
		{"one by its place in a batch", `input.call.batch_index == 1`, []string{"batch"}},
		{"arguments", `input.call.arguments.a == "x"`, []string{"short", "long"}}, // of the long one nobody knows
		{"arguments of another tool", "input.call.tool == \"other\"\n\tinput.call.arguments.a == \"x\"", nil},
		{"connecting", `input.call.method == "initialize"`, []string{"init"}},
		{"everything", `true`, []string{"get", "echo", "short", "long", "batch", "init"}}, // upkeep asks no policy
		{"an error", `input.call.tool > to_number("x")`, []string{"echo", "short", "long", "batch"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.decideBy(denies + "false # " + tt.name + "\n")
			live := map[string]*guarded{}
			for kind, open := range kinds {
				live[kind] = open()
				live[kind].t = t
			}
			pushed := make(chan struct{})
			go func() { defer close(pushed); f.offerPolicy(denies + "{\n\t" + tt.when + "\n}\n") }()
			for _, kind := range tt.ends {
				live[kind].cut(kind)
				delete(live, kind)
			}
			<-pushed
			if got := f.confirmed(revocation.Key{Kind: revocation.KindPolicy, Key: "policy"}); got != int64(len(tt.ends)) {
				t.Errorf("%d streams ended, want %v", got, tt.ends)
			}
			for _, g := range live {
				g.finish() // it was not cut
			}
		})
	}
}

// A stream that begins by the policy that Check asked is not asked about again:
// its arguments may be too long to be carried.
func TestStreamsOpenWhereNothingHasChanged(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	session := f.dial().initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	in := mcpCall(srv.GetId(), value, message("tools/call", `{"name":"echo","arguments":{"a":"`+strings.Repeat("x", 3000)+`"}}`)).with("mcp-session-id", session)
	f.decideBy("package policy\n\nallow if startswith(input.call.arguments.a, \"x\")\n")
	live := f.streaming(t, in)
	srv.CallLimitSeconds = 60 // which no policy sees
	f.change(srv)
	live.finish()

	note := f.mustCheck(in).GetDynamicMetadata()
	srv.Labels = map[string]string{"team": "a"}
	f.change(srv)
	g := f.dial().start(t, note, false, ":status", "200", "content-type", sse)
	if got := g.recv().GetImmediateResponse().GetStatus().GetCode(); got != 503 {
		t.Errorf("what cannot be asked again was answered with %d", got)
	}
	g.finish()
}

// What a policy does not open any more when its answer begins is told as Check
// would tell it, and what it hides is not spoken of.
func TestStreamsThatBeginAfterASwapAreTold(t *testing.T) {
	srv, literal := newServer(), newServer(func(s *pb.Server) { s.LiteralDenials = true })
	f := newFixture(t, srv, literal)
	for _, tt := range []struct {
		name, rego string
		server     *pb.Server
		status     int
		body       string
	}{
		{"denied", denies + "input.call.tool\n", srv, 200, `"id":"x","error":{"code":-31403,"message":"no"`},
		{"hidden", denies + "input.call.tool\n\nhide if true\n", srv, 200, `"id":"x","error":{"code":-31403,"message":"this is not allowed"`},
		{"literally", denies + "input.call.tool\n", literal, 403, `"id":"x","error":{"code":-31403,"message":"no"`},
		{"an error", "package policy\n\nallow := input.call.tool\n", srv, 503, `"id":"x","error":{"code":-31503`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.decideBy("package policy\n\nallow if true\n")
			_, value := f.token(tt.server.GetId())
			session := f.dial().initialize(t, mcpCall(tt.server.GetId(), value, initialize), "up")
			note := f.mustCheck(mcpCall(tt.server.GetId(), value, toolCall("echo")).with("mcp-session-id", session)).GetDynamicMetadata()
			f.decideBy(tt.rego)
			g := f.dial().start(t, note, false, ":status", "200", "content-type", sse)
			out := g.recv().GetImmediateResponse()
			if int(out.GetStatus().GetCode()) != tt.status || !strings.Contains(string(out.GetBody()), tt.body) {
				t.Errorf("answered %d %s, want %d %s", out.GetStatus().GetCode(), out.GetBody(), tt.status, tt.body)
			}
			g.finish()
		})
	}
}

// What policies see of a server decides its streams again, and those of no other.
func TestGrantChangeEndsStreams(t *testing.T) {
	srv, other := newServer(), newServer()
	f := newFixture(t, srv, other)
	id, value := f.token(srv.GetId())
	_, elsewhere := f.token(other.GetId())
	session := f.dial().initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	session2 := f.dial().initialize(t, mcpCall(other.GetId(), elsewhere, initialize), "up")
	call := f.streaming(t, mcpCall(srv.GetId(), value, toolCall("echo")).with("mcp-session-id", session))
	same := f.streaming(t, mcpCall(other.GetId(), elsewhere, toolCall("echo")).with("mcp-session-id", session2))
	listens := f.listening(t, srv, value)
	srv.Grants = []byte(`[{"principal":{"id":"` + id + `"},"tools":["echo"]}]`)
	f.change(srv)
	if got := f.confirmed(revocation.Key{Kind: revocation.KindServer, Key: srv.GetId()}); got != 0 {
		t.Errorf("a grant of what is used ended %d streams", got)
	}
	srv.Grants = []byte(`[{"principal":{"id":"` + id + `"},"tools":["add"]}]`)
	go f.push(nil, nil, []*pb.Server{srv})
	call.cut("the tool that is not granted any more")
	f.eventually("it is pushed", func() bool { return f.xds.Applied(t.Context(), f.revision.Load()) == nil })
	if got := f.confirmed(revocation.Key{Kind: revocation.KindServer, Key: srv.GetId()}); got != 1 {
		t.Errorf("%d streams ended, want the call's", got)
	}
	listens.finish()
	same.finish()
}

// A policy that reads the time decides live streams again as it goes by.
func TestTimeEndsStreams(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	f.decideBy("package policy\n\nallow if true\n")
	live := f.listening(t, srv, value)
	f.server.DecideByTime()
	end := time.Now().Add(time.Second)
	f.decideBy(fmt.Sprintf("package policy\n\nallow if input.time < %d\n", end.UnixNano()))
	f.server.DecideByTime()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		live.cut("the stream")
		if time.Now().Before(end.Add(-200 * time.Millisecond)) { // control's clock is this one
			t.Error("it was cut before its time")
		}
	}()
	f.eventually("its time is over", func() bool {
		f.server.DecideByTime()
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}

// A stream that comes while a policy is swapped in does not outlive a policy
// that would not open it: who registers first is found, who registers later
// is decided by the new one.
func TestStreamsThatOpenDuringASwap(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	settings := gateway()
	settings.StreamsPerCredential = 1000
	f.push(settings, nil, nil)
	_, value := f.token(srv.GetId())
	session := f.dial().initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	get := request{method: "GET", path: "/servers/" + srv.GetId() + "/mcp", header: [][2]string{
		{"authorization", "Bearer " + value}, {"accept", sse}, {"mcp-session-id", session},
	}}
	for round := range 5 {
		f.decideBy(fmt.Sprintf("package policy\n\nallow if true # %d\n", round))
		var notes []*structpb.Struct // Check allowed them all by the old policy
		for range 40 {
			notes = append(notes, f.mustCheck(get).GetDynamicMetadata())
		}
		guard, ended := f.dial(), make(chan string, len(notes))
		for i, note := range notes {
			if i == len(notes)/2 {
				f.offerPolicy(fmt.Sprintf("%sinput.action == \"open_stream\" # %d\n", denies, round))
			}
			g := guard.start(t, note, false, ":status", "200", "content-type", sse)
			go func() {
				out := g.recv()
				if out.GetResponseHeaders() != nil {
					out = g.recv()
				}
				ended <- out.GetImmediateResponse().GetDetails()
				_ = g.stream.CloseSend()
			}()
		}
		for range notes {
			if how := <-ended; how != "credential_ended" && how != "refused_after_check" {
				t.Errorf("ended with %q", how)
			}
		}
	}
}

func TestQuestionIsCarriedOnlyWhereItIsAskedAgain(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.Batches = true })
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	session := f.dial().initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	mcp := func(body string) request { return mcpCall(srv.GetId(), value, body).with("mcp-session-id", session) }
	rpc := func(body string) request { return rpcCall(srv.GetId(), value, body) }
	method := func(name string) request {
		r := mcp("").without("content-type")
		r.method = name
		return r
	}
	for _, tt := range []struct {
		name    string
		in      request
		mark    string
		carried bool
	}{
		{"a tool on /mcp", mcp(toolCall("echo")), "0", true},
		{"a list on /mcp", mcp(toolsList), "list", true},
		{"a list without an id", mcp(`{"jsonrpc":"2.0","method":"tools/list"}`), "list", true},
		{"a task's result", mcp(message("tasks/result", `{"taskId":"a"}`)), "list", true},
		{"an unknown method", mcp(message("tools/all", `{}`)), "list", true},
		{"upkeep", mcp(`{"jsonrpc":"2.0","id":"of its own","method":"ping"}`), "0", false},
		{"upkeep with the id of a list", mcp(message("ping", `{}`)), "list", true},
		{"a notification of upkeep", mcp(initialized), "none", false},
		{"a response", mcp(`{"jsonrpc":"2.0","id":9,"result":{}}`), "none", false},
		{"initialize", mcpCall(srv.GetId(), value, initialize), "seal", true},
		{"GET", method("GET"), "list", true},
		{"GET that resumes", method("GET").with("last-event-id", "7"), "list", true},
		{"DELETE", method("DELETE"), "none", false},
		{"a tool on /rpc", rpc(toolCall("echo")), "0", false},
		{"a list on /rpc", rpc(toolsList), "list", true},
		{"a batch with a list on /rpc", rpc("[" + toolCall("echo") + "," + toolsList + "]"), "list", true},
		{"a list without an id on /rpc", rpc(`{"jsonrpc":"2.0","method":"tools/list"}`), "all", false},
		{"an unknown method on /rpc", rpc(message("add", `[1,2]`)), "0", false},
		{"an unknown method on /rpc that looks like one of MCP", rpc(message("tools/find", "{}")), "list", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := f.mustCheck(tt.in)
			fields := out.GetDynamicMetadata().GetFields()
			if got := fields["guard"].GetStringValue(); got != tt.mark {
				t.Errorf("marked %q, want %q", got, tt.mark)
			}
			if got := fields["question"].GetStringValue() != ""; got != tt.carried {
				t.Errorf("carried: %v, want %v", got, tt.carried)
			}
			encoded := strings.Contains(strings.Join(out.GetOkResponse().GetHeadersToRemove(), " "), "accept-encoding")
			if want := tt.mark == "list" || tt.mark == "seal"; encoded != want && tt.mark != "all" {
				t.Errorf("accept-encoding removed: %v, want %v", encoded, want)
			}
		})
	}
}
