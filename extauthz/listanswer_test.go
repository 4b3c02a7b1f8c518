package extauthz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	procfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/xds"
)

const (
	threeTools = `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"add"},{"name":"echo"},{"name":"clock"}],"nextCursor":"n"}}`
	echoOnly   = `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"echo"}],"nextCursor":"n"}}`
	jsonMedia  = "application/json"
	sseMedia   = "text/event-stream"
)

// lister is a session of a token that may list, and call echo only.
type lister struct {
	guard *envoySide
	srv   *pb.Server
	token string // its id
	in    request
}

func newLister(t *testing.T, f *fixture, srv *pb.Server, scopes ...string) lister {
	t.Helper()
	if scopes == nil {
		scopes = []string{"mcp:connect", "tools:call:echo"}
	}
	id, value := f.token(srv.GetId(), scopes...)
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	return lister{guard, srv, id, mcpCall(srv.GetId(), value, toolsList).with("mcp-session-id", session)}
}

// open starts an answer and expects its body to be asked for.
func (l lister) open(t *testing.T, media string, header ...string) *guarded {
	t.Helper()
	g := l.guard.answer(t, l.in, false, append([]string{":status", "200", "content-type", media}, header...)...)
	out := g.recv()
	if got := out.GetModeOverride().GetResponseBodyMode(); got != procfilterv3.ProcessingMode_STREAMED {
		t.Fatalf("body mode %v: %v", got, out)
	}
	if got := out.GetResponseHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders(); !slices.Contains(got, "content-length") {
		t.Fatalf("removed %v: Envoy fails when a body changes under its length", got)
	}
	return g
}

// part sends one part of the body and returns what takes its place.
func (g *guarded) part(text string, last bool) *procv3.ProcessingResponse {
	g.t.Helper()
	g.send(&procv3.ProcessingRequest{Request: &procv3.ProcessingRequest_ResponseBody{
		ResponseBody: &procv3.HttpBody{Body: []byte(text), EndOfStream: last},
	}})
	return g.recv()
}

// placed is what stands in a part's place.
func placed(t *testing.T, out *procv3.ProcessingResponse, part string) string {
	t.Helper()
	body := out.GetResponseBody()
	if body == nil {
		t.Fatalf("not the answer to a part of a body: %v", out)
	}
	switch m := body.GetResponse().GetBodyMutation(); {
	case m == nil:
		return part
	case m.GetClearBody():
		return ""
	default:
		return string(m.GetBody())
	}
}

// through sends a body in parts and returns what comes out.
func (g *guarded) through(parts ...string) string {
	g.t.Helper()
	var out strings.Builder
	for i, part := range parts {
		out.WriteString(placed(g.t, g.part(part, i == len(parts)-1), part))
	}
	return out.String()
}

// each splits a text into single bytes.
func each(text string) []string { return strings.Split(text, "") }

func TestListShowsWhatTheCallerMayUse(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.Batches = true })
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	event := func(data string) string { return "id: 1_2\nevent: message\ndata: " + data + "\n\n" }
	for _, test := range []struct {
		name, media string
		parts       []string
		want        string
	}{
		{"JSON", jsonMedia, []string{threeTools}, echoOnly},
		{"JSON, the end apart", jsonMedia, []string{threeTools, ""}, echoOnly},
		{"JSON in bytes", jsonMedia, each(threeTools + " \n"), echoOnly},
		{"JSON, charset said", jsonMedia + "; charset=UTF-8", []string{threeTools}, echoOnly},
		{"JSON, an error", jsonMedia, []string{`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}`}, `{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}`},
		{"JSON, a batch", jsonMedia, []string{"[" + threeTools + "," + threeTools + "]"}, "[" + echoOnly + "," + echoOnly + "]"},
		{"prompts need mcp:connect", jsonMedia, []string{`{"id":2,"result":{"prompts":[{"name":"add"}]}}`}, `{"id":2,"result":{"prompts":[{"name":"add"}]}}`},
		{"stream", sseMedia, []string{event(threeTools)}, event(echoOnly)},
		{"stream in bytes", sseMedia, each(": hi\n\n" + event(`{"method":"m"}`) + event(threeTools)), ": hi\n\n" + event(`{"method":"m"}`) + event(echoOnly)},
		{"stream that ends in an event", sseMedia, []string{event(echoOnly) + "data: " + threeTools + "\n", ""}, event(echoOnly)},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := l.open(t, test.media)
			if got := g.through(test.parts...); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			g.finish()
		})
	}
	if got := counter(t, f, "arbiter_list_items_hidden_total"); got != 2*4+4+2*2 {
		t.Errorf("%v items counted as hidden", got)
	}
}

// counter reads one counter of an extauthz.
func counter(t *testing.T, f *fixture, name string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestListOnRPC(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId(), "mcp:connect", "tools:call:echo")
	guard := f.dial()
	for _, in := range []request{
		rpcCall(srv.GetId(), value, toolsList),
		rpcCall(srv.GetId(), value, `[`+toolsList+`,`+toolsList+`]`),
		rpcCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":2,"method":"nobody/knows"}`),
	} {
		g := guard.answer(t, in, false, ":status", "200", "content-type", jsonMedia, "content-length", "99")
		g.recv()
		if got := g.through(threeTools[:9], threeTools[9:]); got != echoOnly {
			t.Errorf("%s gave %s", in.body, got)
		}
		g.finish()
	}
}

func TestListOfTheModernEraIsPrivate(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.Modern = true })
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	g := f.dial().answer(t, mcpCall(srv.GetId(), value, body).with("mcp-protocol-version", "2026-07-28").with("mcp-method", "tools/list"), false, ":status", "200", "content-type", jsonMedia)
	g.recv()
	if got, want := g.through(`{"id":2,"result":{"tools":[],"cacheScope":"public"}}`), `{"id":2,"result":{"tools":[],"cacheScope":"private"}}`; got != want {
		t.Errorf("got %s", got)
	}
	g.finish()
}

// What cannot be filtered is an error in the place of the answer, with its id,
// or the end of a stream.
func TestListThatCannotBeReadIsRefused(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	long := `{"id":2,"result":{"tools":[{"name":"` + strings.Repeat("x", 4<<20) + `"}]}}`
	before := counter(t, f, "arbiter_answers_replaced_total")
	bodies := map[string]string{
		"duplicate keys": `{"id":2,"result":{"tools":[],"tools":[{"name":"add"}]}}`,
		"invalid JSON":   `{"id":2,"result":{"tools":[{"name":"add"}`,
		"HTML":           `<html>`,
		"another case":   `{"id":2,"result":{"Tools":[{"name":"add"}]}}`,
		"no array":       `{"id":2,"result":{"tools":{"name":"add"}}}`,
		"too long":       long,
	}
	for name, body := range bodies {
		t.Run("JSON, "+name, func(t *testing.T) {
			g := l.open(t, jsonMedia)
			half := len(body) / 2
			var got string
			for i, part := range []string{body[:half], body[half:], "  " + threeTools, ""} {
				got += placed(t, g.part(part, i == 3), part)
			}
			var answer struct {
				ID    int
				Error struct{ Code int }
			}
			if err := json.Unmarshal([]byte(got), &answer); err != nil || answer.Error.Code != -31502 || answer.ID != 1 || strings.Contains(got, "add") {
				t.Errorf("got %.300s, %v", got, err)
			}
			g.finish()
		})
		t.Run("stream, "+name, func(t *testing.T) {
			g := l.open(t, sseMedia)
			if got := g.part("data: "+echoOnly+"\n\ndata: "+body+"\n\n", false).GetImmediateResponse().GetDetails(); got != "list_refused" {
				t.Errorf("ended with %q", got)
			}
			g.finish()
		})
	}
	if got := counter(t, f, "arbiter_answers_replaced_total") - before; got != float64(2*len(bodies)) {
		t.Errorf("%v answers counted as replaced", got)
	}
}

func TestListWithBytesBehindItIsBrokenOff(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	g := newLister(t, f, srv).open(t, jsonMedia)
	if got := placed(t, g.part(threeTools, false), threeTools); got != echoOnly {
		t.Errorf("got %s", got)
	}
	if got := g.part(threeTools, true).GetImmediateResponse().GetDetails(); got != "list_refused" {
		t.Errorf("ended with %q", got)
	}
	g.finish()
}

// An answer may end with trailers: nothing can be sent behind them.
func TestListThatEndsWithTrailers(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	trailers := &procv3.ProcessingRequest{Request: &procv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &procv3.HttpTrailers{}}}
	for _, test := range []struct {
		media, part, out string
		cut              bool
	}{
		{jsonMedia, threeTools, echoOnly, false},
		{jsonMedia, threeTools[:50], "", true},
		{sseMedia, "data: " + threeTools + "\n\n", "data: " + echoOnly + "\n\n", false},
		{sseMedia, "data: " + threeTools, "", false},
	} {
		g := l.open(t, test.media)
		if got := placed(t, g.part(test.part, false), test.part); got != test.out {
			t.Errorf("%q became %q", test.part, got)
		}
		g.send(trailers)
		out := g.recv()
		if got := out.GetImmediateResponse() != nil; got != test.cut || !got && out.GetResponseTrailers() == nil {
			t.Errorf("%q and trailers: %v", test.part, out)
		}
		g.finish()
	}
}

func TestListInAnEncodingIsReplaced(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	for _, test := range []struct {
		name   string
		status string
		header []string
		want   int
	}{
		{"gzip", "200", []string{"content-type", jsonMedia, "content-encoding", "gzip"}, 502},
		{"gzip stream", "200", []string{"content-type", sseMedia, "content-encoding", "gzip"}, 502},
		{"two encodings", "200", []string{"content-type", jsonMedia, "content-encoding", "identity", "content-encoding", "br"}, 502},
		{"two in one line", "200", []string{"content-type", jsonMedia, "content-encoding", "identity, gzip"}, 502},
		{"an error in gzip", "500", []string{"content-type", jsonMedia, "content-encoding", "gzip"}, 500},
		{"UTF-7", "200", []string{"content-type", jsonMedia + "; charset=utf-7"}, 502},
		{"UTF-16 stream", "200", []string{"content-type", sseMedia + "; charset=utf-16"}, 502},
		{"a charset in pieces", "200", []string{"content-type", jsonMedia + "; charset*0=utf-8"}, 502},
		{"too long by its own word", "200", []string{"content-type", jsonMedia, "content-length", "5000000"}, 502},
		{"identity", "200", []string{"content-type", jsonMedia, "content-encoding", "Identity"}, 0},
		{"an error in JSON", "404", []string{"content-type", jsonMedia}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := l.guard.answer(t, l.in, false, append([]string{":status", test.status}, test.header...)...)
			out := g.recv()
			if got := int(out.GetImmediateResponse().GetStatus().GetCode()); got != test.want {
				t.Fatalf("status %d: %v", got, out)
			}
			if test.want == 0 { // and what it says is filtered
				if got := g.through(threeTools); got != echoOnly {
					t.Errorf("got %s", got)
				}
			}
			g.finish()
		})
	}
}

// pushPolicy has an extauthz run another policy.
func (f *fixture) pushPolicy(source string) {
	f.t.Helper()
	bundle := policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(source)}}
	body := &pb.Policy{Revision: bundle.Revision(), Files: bundle.Files}
	revision := f.revision.Add(1)
	if err := f.xds.SetFleet(revision, []xds.Resource{{Name: xds.Name{Type: xds.TypePolicy, Name: "policy"}, Body: body}}, nil); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.xds.Applied(ctx, revision); err != nil {
		f.t.Fatal(err)
	}
}

// An error of the policy for one item is an error of the whole answer: not an
// item that is missing, and not one that is shown.
func TestListWithAnErrorOfThePolicyIsRefused(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	f.pushPolicy(`package policy
allow if input.call.tool != "clock"
allow if not input.call.tool
hide := "yes" if input.call.tool == "clock"
`)
	g := l.open(t, jsonMedia)
	if got := g.through(threeTools); !strings.Contains(got, "-31503") || !strings.Contains(got, `"id":1,`) || strings.Contains(got, "echo") {
		t.Errorf("got %s", got)
	}
	g.finish()
	g = l.open(t, sseMedia)
	if got := g.part("data: "+threeTools+"\n\n", false).GetImmediateResponse().GetDetails(); got != "list_refused" {
		t.Errorf("ended with %q", got)
	}
	g.finish()
}

// Items are asked about by what holds when they come, not when the request came.
func TestListFollowsThePolicyAndTheServer(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv, "mcp:connect", "tools:call")
	stream, whole := l.open(t, sseMedia), l.open(t, jsonMedia)
	event := func(data string) string { return "data: " + data + "\n\n" }
	if got := stream.through(event(echoOnly)); got != event(echoOnly) {
		t.Errorf("got %s", got)
	}
	if got := placed(t, whole.part(threeTools[:40], false), threeTools[:40]); got != "" {
		t.Errorf("%q went on before it was whole", got)
	}
	srv.Grants = []byte(`[{"principal":{},"tools":["echo"]}]`)
	f.change(srv)
	if got := stream.through(event(threeTools)); got != event(echoOnly) {
		t.Errorf("after the grants changed: %s", got)
	}
	f.pushPolicy("package policy\nallow if input.action != \"list_item\"\n")
	if got := placed(t, stream.part(event(threeTools), false), ""); strings.Contains(got, "echo") || !strings.Contains(got, `"tools":[]`) {
		t.Errorf("after the policy changed: %s", got)
	}
	if got := whole.through(threeTools[40:]); strings.Contains(got, "echo") || !strings.Contains(got, `"tools":[]`) {
		t.Errorf("an answer that became whole after it: %s", got)
	}
	stream.finish()
	whole.finish()
}

// A stream that is filtered is cut as every other, also while parts of its body
// flow; and an answer that is whole only after a revocation is an error.
func TestListEndsWithItsCredential(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	idle, busy, whole := l.open(t, sseMedia), l.open(t, sseMedia), l.open(t, jsonMedia)
	whole.part(threeTools[:40], false)
	event := "data: " + threeTools + "\n\n"
	cut := make(chan string, 1)
	go func() { // as Envoy: sends what comes, until it is told to stop
		for {
			if busy.stream.Send(&procv3.ProcessingRequest{Request: &procv3.ProcessingRequest_ResponseBody{
				ResponseBody: &procv3.HttpBody{Body: []byte(event)},
			}}) != nil {
				cut <- "nothing could be sent any more"
				return
			}
			out, err := busy.stream.Recv()
			if err != nil {
				cut <- err.Error()
				return
			}
			if details := out.GetImmediateResponse().GetDetails(); details != "" {
				_ = busy.stream.CloseSend()
				cut <- details
				return
			}
		}
	}()
	revoked := make(chan revocation.Result, 1)
	go func() { revoked <- f.revoke(revocation.KindAccessToken, l.token) }()
	if got := idle.recv().GetImmediateResponse().GetDetails(); got != "credential_ended" {
		t.Errorf("the idle stream was cut with %q", got)
	}
	idle.finish()
	if got := <-cut; got != "credential_ended" {
		t.Errorf("the busy stream was cut with %q", got)
	}
	if got := <-revoked; got.StreamsEnded != 2 {
		t.Errorf("revoked: %+v", got)
	}
	if got := whole.through(threeTools[40:]); strings.Contains(got, "echo") || !strings.Contains(got, "-31401") {
		t.Errorf("a list that became whole afterwards: %s", got)
	}
	whole.finish()
}

// An answer that never becomes whole is held no longer than the call limit.
func TestListIsHeldNoLongerThanTheCallLimit(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.CallLimitSeconds = 1 })
	f := newFixture(t, srv)
	g := newLister(t, f, srv).open(t, jsonMedia)
	if got := placed(t, g.part(threeTools[:9], false), ""); got != "" {
		t.Errorf("got %s", got)
	}
	if got := g.recv().GetImmediateResponse().GetDetails(); got != "list_timeout" {
		t.Errorf("ended with %q", got)
	}
	g.finish()
}

// All lists that wait to be whole share one bound; one over it ends, and what
// has ended gives its place back.
func TestListsHeldAreBounded(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	part := `{"id":2,"x":"` + strings.Repeat("x", 1<<20)
	full := f.server.HoldAnswers(3 << 19) // room for one, not for two
	first, second := l.open(t, jsonMedia), l.open(t, jsonMedia)
	if got := placed(t, first.part(part, false), part); got != "" {
		t.Errorf("the first gave %q", got)
	}
	if got := placed(t, second.part(part, false), part); !strings.Contains(got, "-31503") {
		t.Errorf("the second gave %.100q", got)
	}
	stream := l.open(t, sseMedia)
	if got := stream.part("data: "+part, false).GetImmediateResponse().GetDetails(); got != "list_refused" {
		t.Errorf("a stream ended with %q", got)
	}
	first.finish()
	second.finish()
	stream.finish()
	f.eventually("there is room again", func() bool {
		g := l.open(t, jsonMedia)
		defer g.finish()
		return placed(t, g.part(part, false), part) == ""
	})
	full()
	if got := f.server.HeldAnswers(); got != 0 {
		t.Errorf("%d bytes are counted as held when nothing is", got)
	}
}

// A list of many items is asked about within Guard's time, or not at all.
func TestListOfManyItemsIsAnswered(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	var items []string
	for i := range 300_000 {
		items = append(items, fmt.Sprintf(`{"name":"%d"}`, i))
	}
	g := l.open(t, jsonMedia)
	body := `{"id":2,"result":{"tools":[` + strings.Join(items, ",") + `]}}`
	if len(body) > 4<<20 {
		body = body[:0] + `{"id":2,"result":{"tools":[` + strings.Join(items[:230_000], ",") + `]}}`
	}
	got := g.through(body[:1<<20], body[1<<20:2<<20], body[2<<20:])
	if !strings.Contains(got, "-31503") && !strings.Contains(got, `"tools":[]`) {
		t.Errorf("got %.200s", got)
	}
	g.finish()
}
