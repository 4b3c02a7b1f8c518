package extauthz_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

const toolsList = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

func TestCheckAllowsAnAccessTokenOnItsServer(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	id, value := f.token(srv.GetId())
	out := f.mustCheck(rpcCall(srv.GetId(), value, toolsList).with("cookie", "a=b").with("mcp-session-id", "x"))
	if codes.Code(out.GetStatus().GetCode()) != codes.OK || out.GetOkResponse() == nil {
		t.Fatalf("denied: %v", out)
	}
	want := map[string]string{
		"x-arbiter-cluster": "tls-system", "x-arbiter-principal-kind": "access_token", "x-arbiter-principal-id": id,
		"x-arbiter-principal-name": "Zo%C3%AB", "x-arbiter-server": srv.GetId(), "x-arbiter-request-id": "request-1",
		"x-envoy-upstream-rq-timeout-ms": "600000",
	}
	if got := headersOf(out); len(got) != len(want) {
		t.Errorf("headers %v, want %v", got, want)
	}
	for name, value := range want {
		if got := headersOf(out)[name]; got != value {
			t.Errorf("header %s is %q, want %q", name, got, value)
		}
	}
	if got := strings.Join(out.GetOkResponse().GetHeadersToRemove(), " "); got != "authorization cookie last-event-id mcp-session-id accept-encoding" {
		t.Errorf("removed %q", got)
	}
	fields := out.GetDynamicMetadata().GetFields()
	for name, want := range map[string]string{"guard": "list", "dst": "127.0.0.1:9443", "host": "127.0.0.1:9443", "path": "/rpc"} {
		if got := fields[name].GetStringValue(); got != want {
			t.Errorf("metadata %s is %q, want %q", name, got, want)
		}
	}
	if strings.Contains(out.String(), value) {
		t.Error("the answer carries the token")
	}
}

func TestCheckRefusesCredentialsAlike(t *testing.T) {
	srv, other := newServer(), newServer()
	f := newFixture(t, srv, other)
	_, good := f.token(srv.GetId())
	_, foreign := f.token(other.GetId())
	revokedID, revoked := f.token(srv.GetId())
	f.revoke(revocation.KindAccessToken, revokedID)
	_, expired := f.token(srv.GetId())
	f.expire(expired, time.Now().Add(-time.Second))
	gone := identity.NewServerID().String()
	_, ofGone := f.token(gone)

	rows := []struct {
		name   string
		server string
		auth   []string
	}{
		{"none", srv.GetId(), nil},
		{"empty", srv.GetId(), []string{""}},
		{"basic", srv.GetId(), []string{"Basic " + good}},
		{"two spaces", srv.GetId(), []string{"Bearer  " + good}},
		{"joined by a comma", srv.GetId(), []string{"Bearer " + good + ",Bearer " + good}},
		{"twice", srv.GetId(), []string{"Bearer " + good, "Bearer " + good}},
		{"invented", srv.GetId(), []string{"Bearer arb_at_" + strings.Repeat("a", 49)}},
		{"one character changed", srv.GetId(), []string{"Bearer " + good[:20] + "_" + good[21:]}},
		{"a JWT", srv.GetId(), []string{"Bearer a.b.c"}},
		{"of another server", srv.GetId(), []string{"Bearer " + foreign}},
		{"revoked", srv.GetId(), []string{"Bearer " + revoked}},
		{"expired", srv.GetId(), []string{"Bearer " + expired}},
		{"of a server that is gone", gone, []string{"Bearer " + ofGone}},
		{"good, at an unknown server", identity.NewServerID().String(), []string{"Bearer " + good}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			in := rpcCall(row.server, "", toolsList).without("authorization")
			for _, value := range row.auth {
				in = in.with("authorization", value)
			}
			out := f.mustCheck(in)
			want := `Bearer resource_metadata="` + baseURL + `/.well-known/oauth-protected-resource/servers/` + row.server + `/rpc", scope="mcp:connect tools:call"`
			if len(row.auth) > 0 {
				want += `, error="invalid_token"`
			}
			if got := headersOf(out)["www-authenticate"]; got != want {
				t.Errorf("challenge %q, want %q", got, want)
			}
			body := `{"jsonrpc":"2.0","id":1,"error":{"code":-31401,"message":"authentication is needed: send one Authorization header with a live access token of this server","data":{"reason":"unauthenticated","request_id":"request-1"}}}`
			if got := out.GetDeniedResponse(); got.GetStatus().GetCode() != 401 || got.GetBody() != body {
				t.Errorf("answered %v %s", got.GetStatus(), got.GetBody())
			}
		})
	}
	if out := f.mustCheck(rpcCall(srv.GetId(), good, toolsList)); out.GetOkResponse() == nil {
		t.Errorf("the good token is refused: %v", out)
	}
}

func TestCheckAsksNobodyAboutInventedTokens(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	f.mustCheck(rpcCall(srv.GetId(), "arb_at_"+strings.Repeat("a", 49), toolsList))
	if f.control.asked != 0 {
		t.Errorf("control was asked %d times", f.control.asked)
	}
}

func TestCheckErrorIsNeverADecision(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	f.control.mu.Lock()
	f.control.broken = status.Error(codes.Unavailable, "database gone")
	f.control.mu.Unlock()
	for _, row := range []struct {
		name string
		in   request
	}{
		{"control cannot resolve", rpcCall(srv.GetId(), value, toolsList)},
		{"a path that no route has", request{path: "/servers/" + srv.GetId() + "/other"}},
		{"no path", request{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, err := f.check(row.in)
			if status.Code(err) != codes.Unavailable || out != nil {
				t.Errorf("answered %v, %v; want the error Unavailable", out, err)
			}
			if err != nil && strings.Contains(err.Error(), "database") {
				t.Errorf("the error tells what is inside: %v", err)
			}
		})
	}
}

func TestCheckBeforeAuthentication(t *testing.T) {
	srv := newServer(func(s *pb.Server) { s.AllowedOrigins = []string{"https://app.example"} })
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	good := rpcCall(srv.GetId(), value, toolsList)
	at := func(host string) request { r := good; r.host = host; return r }
	query := good
	query.path += "?"
	for _, row := range []struct {
		name string
		in   request
		want int32 // 0: allowed
	}{
		{"base URL's host", good, 0},
		{"listed host", at("other.example"), 0},
		{"loopback, any port", at("127.0.0.1:99"), 0},
		{"loopback v6", at("[::1]:99"), 0},
		{"foreign host", at("evil.example"), 421},
		{"host with loopback as prefix", at("localhost.evil.example"), 421},
		{"own origin", good.with("origin", baseURL), 0},
		{"loopback origin", good.with("origin", "http://localhost:3000"), 0},
		{"allowed origin", good.with("origin", "https://app.example"), 0},
		{"allowed origin, spelled otherwise", good.with("origin", "https://app.example:443"), 403},
		{"foreign origin", good.with("origin", "https://evil.example"), 403},
		{"origin with allowed as prefix", good.with("origin", "https://app.example.evil.example"), 403},
		{"null origin", good.with("origin", "null"), 403},
		{"two origins", good.with("origin", baseURL).with("origin", baseURL), 403},
		{"origin with a path", good.with("origin", baseURL+"/"), 403},
		{"empty query", query, 400},
	} {
		t.Run(row.name, func(t *testing.T) {
			out := f.mustCheck(row.in)
			if got := int32(out.GetDeniedResponse().GetStatus().GetCode()); got != row.want {
				t.Errorf("status %d, want %d: %s", got, row.want, out.GetDeniedResponse().GetBody())
			}
		})
	}
}

func TestCheckAnswersPreflightsWithoutCredential(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	out := f.mustCheck(request{method: "OPTIONS", path: "/servers/" + srv.GetId() + "/mcp", header: [][2]string{
		{"origin", "http://localhost:3000"},
		{"access-control-request-method", "POST"},
		{"access-control-request-headers", "authorization, mcp-param-a, x-evil"},
	}})
	got := headersOf(out)
	if out.GetDeniedResponse().GetStatus().GetCode() != 204 || out.GetDeniedResponse().GetBody() != "" {
		t.Errorf("answered %v", out)
	}
	for name, want := range map[string]string{
		"access-control-allow-origin":  "http://localhost:3000",
		"access-control-allow-methods": "POST, GET, DELETE",
		"access-control-allow-headers": "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, Mcp-Method, Mcp-Name, MCP-Protocol-Version, mcp-param-a",
		"vary":                         "Origin",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if _, found := got["access-control-allow-credentials"]; found {
		t.Error("credentials mode is allowed")
	}
}

func TestCheckRevokedTokenInCache(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	id, value := f.token(srv.GetId())
	if out := f.mustCheck(rpcCall(srv.GetId(), value, toolsList)); out.GetOkResponse() == nil {
		t.Fatalf("refused: %v", out)
	}
	if got := f.revoke(revocation.KindAccessToken, id); got.Replicas != 1 || got.Confirmed != 1 {
		t.Fatalf("revoked: %+v", got)
	}
	if out := f.mustCheck(rpcCall(srv.GetId(), value, toolsList)); out.GetDeniedResponse().GetStatus().GetCode() != 401 {
		t.Errorf("accepted after the confirmation: %v", out)
	}
}

func TestCheckServerDisabledOrGone(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	in := rpcCall(srv.GetId(), value, toolsList)
	f.mustCheck(in)
	srv.Enabled = false
	f.change(srv)
	if got := f.mustCheck(in).GetDeniedResponse(); got.GetStatus().GetCode() != 403 || !strings.Contains(got.GetBody(), "server_disabled") {
		t.Errorf("disabled: %v", got)
	}
	srv.Enabled = true
	f.change(srv)
	if out := f.mustCheck(in); out.GetOkResponse() == nil {
		t.Errorf("enabled again: %v", out)
	}
	f.revoke(revocation.KindServer, srv.GetId())
	if got := f.mustCheck(in).GetDeniedResponse(); got.GetStatus().GetCode() != 401 {
		t.Errorf("deleted: %v", got)
	}
}
