package extauthz_test

import (
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modernMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	modernEcho  = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",` + modernMeta + `}}`
)

func outcome(out *authv3.CheckResponse) (status int, body string) {
	if out.GetOkResponse() != nil {
		return 0, ""
	}
	return int(out.GetDeniedResponse().GetStatus().GetCode()), out.GetDeniedResponse().GetBody()
}

// row is a request and what becomes of it; status 0 is an allow.
type row struct {
	name   string
	in     request
	status int
	body   string // part of it
}

func (f *fixture) checkRows(t *testing.T, rows []row) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			status, body := outcome(f.mustCheck(row.in))
			if status != row.status || !strings.Contains(body, row.body) {
				t.Errorf("answered %d %s, want %d with %q", status, body, row.status, row.body)
			}
		})
	}
}

func TestCheckLegacySession(t *testing.T) {
	srv, other := newServer(), newServer(func(s *pb.Server) { s.Batches = true })
	f := newFixture(t, srv, other)
	_, value := f.token(srv.GetId())
	_, second := f.token(srv.GetId())
	_, elsewhere := f.token(other.GetId())
	guard := f.dial()
	seal := func(server, token, upstream string) string {
		return guard.initialize(t, mcpCall(server, token, initialize), upstream)
	}
	session, plain := seal(srv.GetId(), value, "up-1"), seal(srv.GetId(), value, "")
	batches := guard.initialize(t, mcpCall(other.GetId(), elsewhere, strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)), "")
	in := mcpCall(srv.GetId(), value, toolsList)
	changed := session[:len(session)-1] + "_"
	if changed == session {
		changed = session[:len(session)-1] + "-"
	}
	with := func(r request, id string) request { return r.with("mcp-session-id", id) }
	method := func(r request, name string) request { r.method, r.body = name, ""; return r.without("content-type") }
	f.checkRows(t, []row{
		{"good", with(in, session), 0, ""},
		{"missing", in, 400, "session_missing"},
		{"made up", with(in, "abc"), 404, `{"jsonrpc":"2.0","error":{"code":-31404`},
		{"last character changed", with(in, changed), 404, "-31404"},
		{"of another principal of the server", with(mcpCall(srv.GetId(), second, toolsList), session), 404, "-31404"},
		{"of another server", with(mcpCall(other.GetId(), elsewhere, toolsList), session), 404, "-31404"},
		{"twice", with(with(in, session), session), 400, "duplicate_header"},
		{"on initialize", with(mcpCall(srv.GetId(), value, initialize), session), 400, "opener_refused"},
		{"initialize as notification", mcpCall(srv.GetId(), value, strings.Replace(initialize, `"id":1,`, "", 1)), 400, "opener_refused"},
		{"known version", with(in, session).with("mcp-protocol-version", "2025-06-18"), 0, ""},
		{"unknown version", with(in, session).with("mcp-protocol-version", "1999-01-01"), 400, `"code":-32022`},
		{"modern version", with(in, session).with("mcp-protocol-version", "2026-07-28"), 400, `"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2026-07-28"`},
		{"modern meta", mcpCall(srv.GetId(), value, modernEcho), 400, `"code":-32020`},
		{"server/discover", mcpCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`), 400, `"code":-32022`},
		{"contradicting Mcp-Method", with(in, session).with("mcp-method", "tools/call"), 400, `"code":-32020`},
		{"agreeing Mcp-Method", with(in, session).with("mcp-method", "tools/list"), 0, ""},
		{"accept without SSE", with(in, session).without("accept").with("accept", "application/json"), 406, ""},
		{"accept with q=0", with(in, session).without("accept").with("accept", "application/json, text/event-stream;q=0"), 406, ""},
		{"GET", method(with(in, session), "GET"), 0, ""},
		{"GET without session", method(in, "GET"), 400, "session_missing"},
		{"GET with a body", func() request { r := with(in, session); r.method = "GET"; return r }(), 400, "body_not_allowed"},
		{"DELETE", method(with(in, session), "DELETE"), 0, ""},
		{"DELETE, upstream without sessions", method(with(in, plain), "DELETE"), 405, "session_without_upstream"},
		{"PUT", method(with(in, session), "PUT"), 405, "method_not_allowed"},
		{"response to the server", with(mcpCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":9,"result":{}}`), session), 0, ""},
		{"batch, not allowed", with(mcpCall(srv.GetId(), value, "["+toolsList+"]"), session), 400, "batch_not_allowed"},
		{"batch, contradicting Mcp-Method", with(mcpCall(other.GetId(), elsewhere, "["+toolsList+"]"), batches).with("mcp-method", "ping"), 400, `"code":-32020`},
		{"response of a session that is gone", with(mcpCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":9,"result":{}}`), "abc"), 404, `{"jsonrpc":"2.0","error"`},
		{"response without a session", mcpCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":9,"result":{}}`), 400, `{"jsonrpc":"2.0","error"`},
		{"response without a credential", mcpCall(srv.GetId(), "x", `{"jsonrpc":"2.0","id":9,"result":{}}`), 401, `{"jsonrpc":"2.0","error"`},
		{"batch, allowed", with(mcpCall(other.GetId(), elsewhere, "["+toolsList+"]"), batches), 0, ""},
	})

	out := f.mustCheck(method(with(in, session), "GET").with("last-event-id", "5"))
	if got := headersOf(out)["mcp-session-id"]; got != "up-1" {
		t.Errorf("the upstream gets the session %q, want its own", got)
	}
	if removed := strings.Join(out.GetOkResponse().GetHeadersToRemove(), " "); removed != "authorization cookie accept-encoding" {
		t.Errorf("removed %q: Last-Event-ID of a live session stays", removed)
	}
	out = f.mustCheck(with(in, session).with("last-event-id", "5"))
	if removed := strings.Join(out.GetOkResponse().GetHeadersToRemove(), " "); removed != "authorization cookie last-event-id accept-encoding" {
		t.Errorf("removed %q: a POST resumes nothing", removed)
	}
	out = f.mustCheck(with(in, plain).with("last-event-id", "5"))
	if removed := strings.Join(out.GetOkResponse().GetHeadersToRemove(), " "); removed != "authorization cookie mcp-session-id last-event-id accept-encoding" {
		t.Errorf("removed %q: an upstream without sessions gets none", removed)
	}
}

func TestCheckModern(t *testing.T) {
	both := newServer(func(s *pb.Server) { s.Modern = true })
	only := newServer(func(s *pb.Server) { s.Modern, s.Legacy = true, false })
	f := newFixture(t, both, only)
	_, value := f.token(both.GetId())
	_, ofOnly := f.token(only.GetId())
	modern := func(r request) request { return r.with("mcp-protocol-version", "2026-07-28") }
	in := modern(mcpCall(both.GetId(), value, modernEcho)).with("mcp-method", "tools/call").with("mcp-name", "echo")
	body := func(text string) request { r := in; r.body = text; return r }
	get := modern(request{method: "GET", path: in.path, header: in.header[:1]}).with("accept", "text/event-stream")
	f.checkRows(t, []row{
		{"good", in.with("mcp-session-id", "anything"), 0, ""},
		{"name in base64", in.without("mcp-name").with("mcp-name", "=?base64?ZWNobw==?="), 0, ""},
		{"another name", in.without("mcp-name").with("mcp-name", "add"), 400, `"code":-32020`},
		{"no name", in.without("mcp-name"), 400, `"code":-32020`},
		{"no method", in.without("mcp-method"), 400, `"code":-32020`},
		{"no meta", body(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`), 400, `"code":-32602`},
		{"no capabilities", body(strings.Replace(modernEcho, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1)), 400, `"code":-32602`},
		{"meta of another version", body(strings.Replace(modernEcho, "2026-07-28", "2025-11-25", 1)), 400, `"code":-32020`},
		{"initialize", body(initialize).without("mcp-name").without("mcp-method"), 400, `"code":-32022`},
		{"notification", body(initialized).without("mcp-name").without("mcp-method"), 0, ""},
		{"response", body(`{"jsonrpc":"2.0","id":9,"result":{}}`), 400, "-32600"},
		{"GET", get, 405, "method_not_allowed"},
		{"legacy opener beside it", mcpCall(both.GetId(), value, initialize), 0, ""},
		{"modern only: initialize", mcpCall(only.GetId(), ofOnly, initialize), 400, `"supported":["2026-07-28"],"requested":"2025-11-25"`},
		{"modern only: no version", mcpCall(only.GetId(), ofOnly, toolsList), 400, `"code":-32022`},
	})
	if removed := strings.Join(f.mustCheck(in).GetOkResponse().GetHeadersToRemove(), " "); !strings.Contains(removed, "mcp-session-id") || !strings.Contains(removed, "last-event-id") {
		t.Errorf("removed %q: a modern request has no session", removed)
	}
}

func TestCheckDenialsKeepTheSessionAlive(t *testing.T) {
	srv := newServer()
	literal := newServer(func(s *pb.Server) { s.LiteralDenials = true })
	f := newFixture(t, srv, literal)
	guard := f.dial()
	_, narrow := f.token(srv.GetId(), "mcp:connect", "tools:call:echo")
	session := guard.initialize(t, mcpCall(srv.GetId(), narrow, initialize), "")
	_, toolsOnly := f.token(srv.GetId(), "tools:call")
	_, literally := f.token(literal.GetId(), "mcp:connect")
	literalSession := guard.initialize(t, mcpCall(literal.GetId(), literally, initialize), "")
	add := `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"add"}}`
	echo := strings.Replace(add, "add", "echo", 1)
	in := func(body string) request { return mcpCall(srv.GetId(), narrow, body).with("mcp-session-id", session) }
	f.checkRows(t, []row{
		{"allowed tool", in(echo), 0, ""},
		{"allowed list", in(toolsList), 0, ""},
		{"denied tool", in(add), 200, `{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"calling the tool \"add\" needs the scope tools:call`},
		{"denied tool as notification", in(strings.Replace(add, `"id":"x",`, "", 1)), 202, ""},
		{"denied tool on /rpc", rpcCall(srv.GetId(), narrow, add), 403, `"id":"x","error":{"code":-31403`},
		{"denied in a batch on /rpc", rpcCall(srv.GetId(), narrow, "["+echo+","+initialized+","+strings.Replace(add, `"x"`, "7", 1)+"]"), 403, `[{"jsonrpc":"2.0","id":"x","error":{"code":-31403`},
		{"denied initialize", mcpCall(srv.GetId(), toolsOnly, initialize), 200, `"id":1,"error":{"code":-31403`},
		{"denied tool, literal form", mcpCall(literal.GetId(), literally, add).with("mcp-session-id", literalSession), 403, `"id":"x","error":{"code":-31403`},
		{"ping needs no scope", rpcCall(srv.GetId(), toolsOnly, `{"jsonrpc":"2.0","id":1,"method":"ping"}`), 0, ""},
	})
	out := f.mustCheck(in(add))
	if got := headersOf(out)["arbiter-decision"]; got != "deny" {
		t.Errorf("arbiter-decision is %q", got)
	}
}

func TestCheckBodies(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.MaxBody = 100 })
	noRPC := newServer(func(s *pb.Server) { s.Rpc = nil })
	noMCP := newServer(func(s *pb.Server) { s.Mcp = nil })
	f := newFixture(t, srv, noRPC, noMCP)
	_, value := f.token(srv.GetId())
	_, ofNoRPC := f.token(noRPC.GetId())
	_, ofNoMCP := f.token(noMCP.GetId())
	in := rpcCall(srv.GetId(), value, toolsList)
	media := func(value string) request { return in.without("content-type").with("content-type", value) }
	cut, lied := in, in
	cut.partial, lied.size = "true", 5000
	long := in
	long.body = `{"jsonrpc":"2.0","id":77,"method":"m","params":{"a":"` + strings.Repeat("x", 100) + `"}}`
	f.checkRows(t, []row{
		{"utf-8", media("application/json; charset=UTF-8"), 0, ""},
		{"another charset", media("application/json; charset=utf-16"), 415, ""},
		{"another media type", media("text/plain"), 415, ""},
		{"prefix of a media type", media("application/jsonx"), 415, ""},
		{"none", in.without("content-type"), 415, ""},
		{"encoding", in.with("content-encoding", "gzip"), 415, ""},
		{"identity encoding", in.with("content-encoding", "identity"), 415, ""},
		{"not JSON", func() request { r := in; r.body = "{"; return r }(), 400, `"code":-32700`},
		{"shown in part", cut, 413, `"code":-31413`},
		{"size disagrees", lied, 413, `"code":-31413`},
		{"over the server's limit", long, 413, `"id":77,"error":{"code":-31413`},
		{"no rpc upstream", rpcCall(noRPC.GetId(), ofNoRPC, toolsList), 501, `"code":-31501`},
		{"no mcp upstream", mcpCall(noMCP.GetId(), ofNoMCP, initialize), 501, `"code":-31501`},
		{"authentication comes first", request{method: "PUT", path: in.path, body: "{"}, 401, ""},
	})
}
