package xds_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/xds"
)

// TestEnvoyRoutesByCheck sends two servers' requests to two upstreams, one of
// them at a deeper path, without anything in Envoy that names them.
func TestEnvoyRoutesByCheck(t *testing.T) {
	g := startGateway(t, nil)
	first, second := newUpstream(t, answerJSON(`{"from":1}`)), newUpstream(t, answerJSON(`{"from":2}`))
	deep := toURL(second.URL)
	deep.path, deep.host = "/base/mcp?tenant=7", "mcp.example:8080"
	one, two := g.route(toURL(first.URL)), g.route(deep)
	for _, http2 := range []bool{false, true} {
		c := g.client(http2)
		if got := g.do(t, c, "POST", "/servers/"+one+"/rpc", `{}`); got.status != 200 || got.body != `{"from":1}` {
			t.Errorf("first server: %+v", got)
		}
		if got := g.do(t, c, "DELETE", "/servers/"+two+"/mcp", ``); got.status != 200 || got.body != `{"from":2}` {
			t.Errorf("second server: %+v", got)
		}
		last, _ := second.seen()
		if last.RequestURI != "/base/mcp?tenant=7" || last.Host != "mcp.example:8080" || last.Method != "DELETE" {
			t.Errorf("second upstream saw %s %s %s", last.Method, last.Host, last.RequestURI)
		}
	}
}

// TestEnvoyHasNoOtherPath holds that what is not exactly a real path is
// answered without asking Check and without touching an upstream.
func TestEnvoyHasNoOtherPath(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, answerJSON(`{}`))
	id := g.route(toURL(up.URL))
	rpc := "/servers/" + id + "/rpc"
	tests := []struct {
		name, target string
		want         int
	}{
		{"root", "/", 404},
		{"the id alone", "/servers/" + id, 404},
		{"trailing slash", rpc + "/", 404},
		{"suffix", rpc + "x", 404},
		{"unknown suffix", "/servers/" + id + "/identity/me", 404},
		{"path parameter", rpc + ";x=1", 404},
		{"path parameter before", "/servers/" + id + ";x=1/rpc", 404},
		{"upper-case id", "/servers/" + strings.ToUpper(id) + "/rpc", 404},
		{"upper-case path", "/servers/" + id + "/RPC", 404},
		{"id without hyphens", "/servers/" + strings.ReplaceAll(id, "-", "") + "/rpc", 404},
		{"encoded question mark", rpc + "%3f", 404},
		{"encoded newline", rpc + "%0a", 404},
		{"well-known path", "/.well-known/oauth-protected-resource" + rpc, 404},
		{"encoded slash", "/servers/" + id + "%2frpc", 400},
		{"encoded backslash", "/servers/" + id + "%5crpc", 400},
		{"encoded NUL", rpc + "%00", 400},
		{"fragment", rpc + "#x", 400},
		{"climbing out of the root", "/../../etc/passwd", 404},
		{"dot segment", "/servers/./" + id + "/../" + id + "/rpc", 200}, // canonical before anybody looks
		{"doubled slash", "//servers//" + id + "//rpc", 200},
		{"encoded letter", "/servers/" + id + "/r%70c", 200},
		{"backslash", `/servers/` + id + `\rpc`, 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, hits := up.seen()
			asked := g.extauthz.count()
			got := g.raw(t, "POST "+test.target+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
			if got.status != test.want {
				t.Errorf("got %d %q, want %d", got.status, got.body, test.want)
			}
			checkAnswer(t, got)
			_, hitsAfter := up.seen()
			if passed := test.want == 200; (hitsAfter > hits) != passed || (g.extauthz.count() > asked) != passed {
				t.Errorf("upstream was hit %d times, Check asked %d times", hitsAfter-hits, g.extauthz.count()-asked)
			}
			if test.want != 200 && got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("answer is %v %q", got.header, got.body)
			}
		})
	}
}

// TestEnvoyRefusesMalformedRequests lists what never becomes a request.
func TestEnvoyRefusesMalformedRequests(t *testing.T) {
	g := startGateway(t, func(s *xds.State) {
		s.Times.RequestHeaders, s.Times.Request = 300*time.Millisecond, 500*time.Millisecond
	})
	up := newUpstream(t, answerJSON(`{}`))
	rpc := "/servers/" + g.route(toURL(up.URL)) + "/rpc"
	const host = "Host: localhost\r\n"
	tests := []struct {
		name, request string
		want          int
	}{
		{"HTTP/1.0", "POST " + rpc + " HTTP/1.0\r\n" + host + "\r\n", 426},
		{"no host", "POST " + rpc + " HTTP/1.1\r\n\r\n", 400},
		{"underscore in a header name", "POST " + rpc + " HTTP/1.1\r\n" + host + "x_arbiter_cluster: plain\r\n\r\n", 400},
		{"length and chunks", "POST " + rpc + " HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"two lengths", "POST " + rpc + " HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
		{"space before the colon", "POST " + rpc + " HTTP/1.1\r\n" + host + "a : b\r\n\r\n", 400},
		{"unknown coding", "POST " + rpc + " HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n", 501},
		{"unknown upgrade", "GET " + rpc + " HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 403},
		{"CONNECT", "CONNECT localhost:1 HTTP/1.1\r\n" + host + "\r\n", 404},
		{"headers over 60 KiB", "POST " + rpc + " HTTP/1.1\r\n" + host + "a: " + strings.Repeat("b", 62<<10) + "\r\n\r\n", 431},
		{"over 100 headers", "POST " + rpc + " HTTP/1.1\r\n" + host + strings.Repeat("a: b\r\n", 101) + "\r\n", 431},
		{"headers that never end", "POST " + rpc + " HTTP/1.1\r\n" + host, 408},
		{"a body that never ends", "POST " + rpc + " HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\na", 408},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := g.raw(t, test.request)
			if got.status != test.want {
				t.Errorf("got %d %v %q, want %d", got.status, got.header, got.body, test.want)
			}
			checkAnswer(t, got)
		})
	}
	if _, hits := up.seen(); hits > 0 {
		t.Errorf("the upstream was hit %d times", hits)
	}
}

// raw sends bytes as they are, on a connection of its own.
func (g *gateway) raw(t *testing.T, request string) result {
	t.Helper()
	conn, err := tls.Dial("tcp", g.place.Listen.String(), &tls.Config{RootCAs: g.authority.pool(), ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(fmt.Errorf("reading the answer: %w", err))
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return result{answer.StatusCode, answer.Header, string(body)}
}

// checkAnswer holds what every answer has, whoever made it.
func checkAnswer(t *testing.T, got result) {
	t.Helper()
	if ids := got.header.Values("Arbiter-Request-Id"); len(ids) != 1 || len(ids[0]) != 36 {
		t.Errorf("request ids %q", ids)
	}
	if sniff := got.header.Values("X-Content-Type-Options"); len(sniff) != 1 || sniff[0] != "nosniff" {
		t.Errorf("x-content-type-options %q", sniff)
	}
	for name := range got.header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-envoy-") || strings.HasPrefix(lower, "x-arbiter-") {
			t.Errorf("the answer carries %s", name)
		}
	}
}
