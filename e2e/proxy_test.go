//go:build e2e

package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	decisions "github.com/arbiter-gateway/arbiter/policies/record"
)

// source is the caller's address in the decision record of an answer.
func (g *gateway) source(t *testing.T, got reply) string {
	t.Helper()
	id := got.header.Get("Arbiter-Request-Id")
	var out string
	eventually(t, 10*time.Second, "the decision is recorded", func() bool {
		var err error
		out, err = g.cli(t, "", "explain", "--record", id, "--json")
		return err == nil
	})
	found, err := decisions.Parse([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	if ip, _, err := net.SplitHostPort(found.Peer); err != nil || ip != found.Input.Request.Source {
		t.Errorf("the peer is %s, a policy saw %s", found.Peer, found.Input.Request.Source)
	}
	return found.Peer
}

// TestCallersAddressIsTheConnections: without trusted proxies nobody can say
// that a request came from elsewhere.
func TestCallersAddressIsTheConnections(t *testing.T) {
	server := shared.demo(t)
	_, token := shared.addToken(t, server)
	ask := call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "tools/list", ""), header: map[string]string{
		"X-Forwarded-For": "203.0.113.9", "X-Real-Ip": "203.0.113.9", "Forwarded": "for=203.0.113.9",
	}}
	if got := shared.source(t, shared.do(t, ask)); !strings.HasPrefix(got, "127.0.0.1:") {
		t.Errorf("source %q", got)
	}
	if got := shared.raw(t, "PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", time.Second); !strings.Contains(got, "400") {
		t.Errorf("a PROXY header inside TLS was answered %q", got)
	}
}

// TestTrustedHops believes the last line that a trusted proxy appended, and
// nothing that the caller wrote before it.
func TestTrustedHops(t *testing.T) {
	g := start(t, "ARBITER_TRUSTED_PROXIES=1")
	server := g.demo(t)
	_, token := g.addToken(t, server)
	ask := call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "tools/list", ""), header: map[string]string{
		"X-Forwarded-For": "198.51.100.66, 203.0.113.9", "X-Real-Ip": "198.51.100.66",
	}}
	if got := g.source(t, g.do(t, ask)); !strings.HasPrefix(got, "203.0.113.9:") {
		t.Errorf("source %q, want what the proxy appended", got)
	}
}

// TestProxyProtocol takes the caller's address from the PROXY header, and no
// connection without one.
func TestProxyProtocol(t *testing.T) {
	g := start(t, "ARBITER_TRUSTED_PROXIES=proxy_protocol")
	server := g.demo(t)
	_, token := g.addToken(t, server)
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "PROXY TCP4 203.0.113.9 127.0.0.1 4444 8443\r\n"); err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: g.roots, ServerName: "localhost", NextProtos: []string{"http/1.1"}})
	body := rpc("1", "tools/list", "")
	if _, err := fmt.Fprintf(secure, "POST /servers/%s/rpc HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", server, token, len(body), body); err != nil {
		t.Fatal(err)
	}
	_ = secure.SetReadDeadline(time.Now().Add(20 * time.Second))
	answer, _ := io.ReadAll(secure)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Fatalf("answered %q", answer)
	}
	_, rest, _ := strings.Cut(string(answer), "arbiter-request-id: ")
	id, _, _ := strings.Cut(rest, "\r\n")
	got := reply{header: map[string][]string{"Arbiter-Request-Id": {id}}}
	if source := g.source(t, got); source != "203.0.113.9:4444" {
		t.Errorf("source %q", source)
	}
	if _, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", g.addr, &tls.Config{RootCAs: g.roots, ServerName: "localhost"}); err == nil {
		t.Error("a connection without a PROXY header was accepted")
	}
}
