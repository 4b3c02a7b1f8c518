package extauthz_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	procfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// envoySide asks Guard as Envoy does, over its socket.
type envoySide struct {
	f      *fixture
	client procv3.ExternalProcessorClient
}

func (f *fixture) dial() *envoySide {
	f.t.Helper()
	conn, err := grpc.NewClient("unix:"+f.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return &envoySide{f, procv3.NewExternalProcessorClient(conn)}
}

// guarded is one answer on its way through Guard.
type guarded struct {
	t      *testing.T
	stream procv3.ExternalProcessor_ProcessClient
}

// answer starts an upstream's answer to a request that Check allowed.
func (e *envoySide) answer(t *testing.T, in request, end bool, header ...string) *guarded {
	t.Helper()
	out := e.f.mustCheck(in)
	if out.GetOkResponse() == nil {
		t.Fatalf("Check denied: %v", out)
	}
	return e.start(t, out.GetDynamicMetadata(), end, header...)
}

func (g *guarded) send(in *procv3.ProcessingRequest) {
	g.t.Helper()
	if err := g.stream.Send(in); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guarded) recv() *procv3.ProcessingResponse {
	g.t.Helper()
	out, err := g.stream.Recv()
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// finish is Envoy's half close; Guard must then end without an error.
func (g *guarded) finish() {
	g.t.Helper()
	if err := g.stream.CloseSend(); err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.stream.Recv(); !errors.Is(err, io.EOF) {
		g.t.Errorf("after the end Guard said %v", err)
	}
}

func (g *guarded) body(text string) *procv3.ProcessingResponse {
	g.t.Helper()
	g.send(&procv3.ProcessingRequest{Request: &procv3.ProcessingRequest_ResponseBody{
		ResponseBody: &procv3.HttpBody{Body: []byte(text), EndOfStream: true},
	}})
	return g.recv()
}

// initialize opens a session through Check and Guard and returns its id.
func (e *envoySide) initialize(t *testing.T, in request, upstream string) string {
	t.Helper()
	header := []string{":status", "200", "content-type", "application/json"}
	if upstream != "" {
		header = append(header, "mcp-session-id", upstream)
	}
	g := e.answer(t, in, false, header...)
	first := g.recv()
	if got := first.GetModeOverride().GetResponseBodyMode(); got != procfilterv3.ProcessingMode_BUFFERED_PARTIAL {
		t.Fatalf("body mode %v", got)
	}
	if got := first.GetResponseHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders(); len(got) != 1 || got[0] != "mcp-session-id" {
		t.Fatalf("removed %v: the upstream's id must not pass", got)
	}
	id := setHeader(g.body(`{"jsonrpc":"2.0","id":1,"result":{}}`).GetResponseBody().GetResponse())
	if id == "" || len(id) > 512 {
		t.Fatalf("session id %q", id)
	}
	g.finish()
	return id
}

func setHeader(in *procv3.CommonResponse) string {
	for _, option := range in.GetHeaderMutation().GetSetHeaders() {
		if option.GetHeader().GetKey() == "mcp-session-id" {
			return string(option.GetHeader().GetRawValue())
		}
	}
	return ""
}

func TestGuardGivesNoSessionWithoutAResult(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	for _, row := range []struct {
		name, body string
		replaced   bool
	}{
		{"an error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`, false},
		{"a result that is no object", `{"jsonrpc":"2.0","id":1,"result":null}`, false},
		{"cut in the middle", `{"jsonrpc":"2.0","id":1,"result":{`, true},
		{"two values", `{"jsonrpc":"2.0","id":1,"result":{}} {}`, true},
		{"result twice", `{"result":{},"result":{}}`, true},
		{"result and error", `{"result":{},"error":{}}`, true},
		{"too long", `{"jsonrpc":"2.0","id":1,"result":{"a":"` + strings.Repeat("x", 256<<10) + `"}}`, true},
		{"nothing", ``, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := f.dial().answer(t, mcpCall(srv.GetId(), value, initialize), false, ":status", "200", "content-type", "application/json")
			g.recv()
			out := g.body(row.body)
			if got := out.GetImmediateResponse() != nil; got != row.replaced {
				t.Errorf("replaced: %v, want %v", got, row.replaced)
			}
			if id := setHeader(out.GetResponseBody().GetResponse()); id != "" {
				t.Errorf("gave the session id %q", id)
			}
			g.finish()
		})
	}
}

func TestGuardReplacesWhatMayNotPass(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	mcp := mcpCall(srv.GetId(), value, toolsList).with("mcp-session-id", session)
	note := mcpCall(srv.GetId(), value, initialized).with("mcp-session-id", session)
	rpc := rpcCall(srv.GetId(), value, toolsList)
	get := note.without("content-type")
	get.method, get.body = "GET", ""
	rpcNote := rpcCall(srv.GetId(), value, initialized)
	opener := mcpCall(srv.GetId(), value, initialize)
	html, jsonType, sse := "text/html", "application/json; charset=utf-8", "text/event-stream"
	for _, row := range []struct {
		name   string
		in     request
		status string
		media  string
		end    bool
		want   int // 0: passes
	}{
		{"401", mcp, "401", jsonType, false, 502},
		{"407", mcp, "407", jsonType, false, 502},
		{"redirect", mcp, "302", jsonType, true, 502},
		{"html", mcp, "200", html, false, 502},
		{"no media type", mcp, "200", "", false, 502},
		{"empty answer to a request", mcp, "200", "", true, 502},
		{"202 to a request", mcp, "202", "", true, 502},
		{"202 to a notification", note, "202", "", false, 0},
		{"204 to a notification", note, "204", "", true, 0},
		{"202 to a GET", get, "202", "", false, 502},
		{"nothing to a GET", get, "204", "", true, 502},
		{"405 to a GET", get, "405", jsonType, false, 0},
		{"JSON to a notification on /rpc", rpcNote, "200", jsonType, false, 202},
		{"nothing to a notification on /rpc", rpcNote, "204", "", true, 202},
		{"error to a notification on /rpc", rpcNote, "500", html, false, 500},
		{"html error", mcp, "500", html, false, 500},
		{"html 404", mcp, "404", html, false, 404},
		{"JSON error", mcp, "500", jsonType, false, 0},
		{"stream on /rpc", rpc, "200", sse, false, 502},
		{"opener, two session ids", opener, "200", sse, false, 502},
		{"opener, empty", opener, "200", jsonType, true, 502},
		{"opener, 202", opener, "202", "", true, 502},
		{"opener, JSON error status", opener, "500", jsonType, false, 0},
		{"no status", mcp, "x", jsonType, false, 502},
	} {
		t.Run(row.name, func(t *testing.T) {
			header := []string{":status", row.status, "www-authenticate", "evil"}
			if row.media != "" {
				header = append(header, "content-type", row.media)
			}
			if strings.Contains(row.name, "two session ids") {
				header = append(header, "mcp-session-id", "a", "mcp-session-id", "b")
			}
			g := guard.answer(t, row.in, row.end, header...)
			out := g.recv()
			got := int(out.GetImmediateResponse().GetStatus().GetCode())
			if got != row.want {
				t.Errorf("status %d, want %d", got, row.want)
			}
			if row.want >= 400 {
				var body struct{ Error struct{ Code int } }
				if err := json.Unmarshal(out.GetImmediateResponse().GetBody(), &body); err != nil || body.Error.Code != -31502 {
					t.Errorf("body %s", out.GetImmediateResponse().GetBody())
				}
			}
			g.finish()
		})
	}
}

func TestGuardCutsLiveStreams(t *testing.T) {
	srv, other := newServer(), newServer()
	f := newFixture(t, srv, other)
	guard := f.dial()
	open := func(server, value string) *guarded {
		session := guard.initialize(t, mcpCall(server, value, initialize), "up")
		get := request{method: "GET", path: "/servers/" + server + "/mcp", header: [][2]string{
			{"authorization", "Bearer " + value}, {"accept", "text/event-stream"}, {"mcp-session-id", session},
		}}
		g := guard.answer(t, get, false, ":status", "200", "content-type", "text/event-stream")
		if out := g.recv(); out.GetResponseHeaders() == nil {
			t.Fatalf("the stream did not open: %v", out)
		}
		return g
	}
	cutNow := func(g *guarded) {
		t.Helper()
		if got := g.recv().GetImmediateResponse().GetDetails(); got != "credential_ended" {
			t.Errorf("cut with %q", got)
		}
		g.finish()
	}
	id, value := f.token(srv.GetId())
	_, staying := f.token(srv.GetId())
	_, elsewhere := f.token(other.GetId())
	first, second, third := open(srv.GetId(), value), open(srv.GetId(), staying), open(other.GetId(), elsewhere)

	revoked := make(chan revocation.Result, 1)
	go func() { revoked <- f.revoke(revocation.KindAccessToken, id) }()
	cutNow(first)
	if got := <-revoked; got.StreamsEnded != 1 || got.Confirmed != 1 {
		t.Errorf("revoked: %+v", got)
	}
	srv.Enabled = false
	go func() { f.push(nil, nil, []*pb.Server{srv}) }()
	cutNow(second)

	// Disabled and enabled again before this replica heard of either.
	fourth := open(other.GetId(), elsewhere)
	other.StoppedRevision = f.revision.Load()
	go func() { f.push(nil, nil, []*pb.Server{other}) }()
	cutNow(third)
	cutNow(fourth)
	third = open(other.GetId(), elsewhere)

	_, short := f.token(other.GetId())
	f.expire(short, time.Now().Add(2*time.Second))
	cutNow(open(other.GetId(), short))
	third.finish()
}

func TestGuardRefusesStreamsBeyondTheCap(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	in := mcpCall(srv.GetId(), value, toolsList).with("mcp-session-id", session)
	var live []*guarded
	for range 3 {
		g := guard.answer(t, in, false, ":status", "200", "content-type", "text/event-stream")
		g.recv()
		live = append(live, g)
	}
	status, body := outcome(f.mustCheck(in))
	if status != 200 || !strings.Contains(body, "-31429") {
		t.Errorf("POST at the cap: %d %s", status, body)
	}
	ping := in
	ping.body = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if status, body := outcome(f.mustCheck(ping)); status != 0 {
		t.Errorf("upkeep at the cap: %d %s", status, body)
	}
	get := in.without("content-type")
	get.method, get.body = "GET", ""
	if status, body := outcome(f.mustCheck(get)); status != 429 || !strings.Contains(body, "too_many_streams") {
		t.Errorf("GET at the cap: %d %s", status, body)
	}
	live[0].finish()
	f.eventually("a place is free again", func() bool { s, _ := outcome(f.mustCheck(in)); return s == 0 })
}
