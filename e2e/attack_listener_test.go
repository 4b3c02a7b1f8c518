//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

func TestGatewaySpeaksNoOlderTLS(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		conn, err := tls.Dial("tcp", shared.addr, &tls.Config{RootCAs: shared.roots, ServerName: "localhost", MinVersion: version, MaxVersion: version})
		if want := version == tls.VersionTLS13; (err == nil) != want {
			t.Errorf("%s: %v, want it accepted: %v", tls.VersionName(version), err, want)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

func TestGatewaySpeaksNoPlainHTTP(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.untouched(t, func() {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		if _, err := io.WriteString(conn, f.post(f.rpc(), ping)); err != nil {
			t.Fatal(err)
		}
		if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "HTTP/1.1 2") {
			t.Errorf("answer %q", answer)
		}
	})
}

// What is good enough on a laptop is not on a public origin: there loopback is
// a foreign name like any other.
func TestGatewayGivesLoopbackNoRightsOnAPublicOrigin(t *testing.T) {
	t.Parallel()
	f := front{gateway: start(t, "ARBITER_BASE_URL=https://gw.example", "ARBITER_HOSTS=alias.example:9443"), echo: testfleet.NewEcho(t, testfleet.Config{})}
	f.server = f.addServer(t, "", f.echo.Origin()+"/rpc", "--origin", "https://app.example")
	_, f.token = f.addToken(t, f.server)
	ask := func(host, origin string) reply {
		lines := []string{}
		if origin != "" {
			lines = append(lines, "Origin: "+origin)
		}
		return f.first(t, strings.Replace(f.post(f.rpc(), ping, lines...), "Host: "+f.authority(), "Host: "+host, 1))
	}
	for _, host := range []string{"localhost", "127.0.0.1", f.addr, "[::1]", "gw.example:8443", "gw.example.evil.example", "alias.example", "xgw.example", "gw.example:443:443"} {
		if got := ask(host, ""); got.status != 400 {
			refused(t, got, 421, -32600)
		}
	}
	for _, origin := range []string{"http://localhost", "http://127.0.0.1:5173", "https://localhost", "http://gw.example", "https://gw.example:8443", "https://alias.example:9443", "null"} {
		refused(t, ask("gw.example", origin), 403, -31403)
	}
	if n := len(f.echo.Requests()); n > 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
	for _, host := range []string{"gw.example", "GW.example", "gw.example:443", "alias.example:9443"} {
		for _, origin := range []string{"", "https://gw.example", "https://app.example"} {
			if got := ask(host, origin); got.status != 200 {
				t.Errorf("host %q origin %q: status %d, body %s, want 200", host, origin, got.status, got.body)
			}
		}
	}
	anonymous := strings.Replace(f.post(f.rpc(), ping), "Authorization: Bearer "+f.token+"\r\n", "", 1)
	f.base = "https://gw.example"
	got := f.first(t, strings.Replace(anonymous, "Host: localhost:"+f.addr[strings.LastIndex(f.addr, ":")+1:], "Host: alias.example:9443", 1))
	f.unauthorized(t, got, f.rpc(), false) // of the base URL, whatever was dialled
}

// Last-Event-ID belongs to the upstream session that gave it.
func TestGatewayPassesLastEventIDOnlyWithinAnUpstreamSession(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	stream := func(server, token, session string) http.Header {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		resp, err := f.open(t, ctx, call{
			method: "GET", path: "/servers/" + server + "/mcp", token: token,
			header: map[string]string{"Mcp-Session-Id": session, "Last-Event-Id": "7", "Accept": "text/event-stream"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || len(resp.Header.Values("Mcp-Session-Id")) > 0 {
			t.Errorf("status %d, header %v", resp.StatusCode, resp.Header)
		}
		return resp.Header
	}
	session := f.session(t, f.server, f.token)
	f.echo.Reset()
	stream(f.server, f.token, session)
	if r := f.last(t); r.Value("Last-Event-Id") != "7" || r.Value("Mcp-Session-Id") != testfleet.EchoSession {
		t.Errorf("the upstream with sessions saw %q", r.Fields)
	}
	sessionless := new(sessionless)
	origin := testfleet.NewHTTP(t, sessionless, nil)
	server := f.addServer(t, origin+"/mcp", "")
	_, token := f.addToken(t, server)
	stream(server, token, f.session(t, server, token))
	for _, header := range sessionless.headers() {
		if len(header.Values("Last-Event-Id"))+len(header.Values("Mcp-Session-Id")) > 0 {
			t.Errorf("the upstream without sessions saw %v", header)
		}
	}
}

// sessionless is an upstream that gives no session and keeps the headers that
// it sees.
type sessionless struct {
	mu   sync.Mutex // guards seen
	seen []http.Header
}

func (s *sessionless) headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]http.Header(nil), s.seen...)
}

func (s *sessionless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Header.Clone())
	s.mu.Unlock()
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": hello\n\n") // a client that is gone needs none
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
}
