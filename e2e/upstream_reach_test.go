//go:build e2e

package e2e

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// TestUpstreamThatIsDown is 502, whatever is wrong with it, and soon.
func TestUpstreamThatIsDown(t *testing.T) {
	for _, test := range []struct{ name, origin string }{
		{"nobody listens", "http://" + closedPort(t)},
		{"nobody listens, with TLS", "https://" + closedPort(t)},
		{"a name without an address", "http://no-such-host.invalid"},
		{"a name without an address, with TLS", "https://no-such-host.invalid:8443"},
		{"no TLS there", strings.Replace(testfleet.NewEcho(t, testfleet.Config{}).Origin(), "http:", "https:", 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := shared.addServer(t, test.origin+"/mcp", test.origin+"/rpc")
			_, token := shared.addToken(t, server)
			for path, body := range map[string]string{"/rpc": rpc("1", "ping", ""), "/mcp": initialize} {
				got := shared.do(t, call{path: "/servers/" + server + path, token: token, body: body})
				if got.status != 502 || got.code() != -31502 {
					t.Errorf("%s: status %d, body %s", path, got.status, got.body)
				}
				checkOurError(t, got, "1")
				checkClean(t, got)
			}
		})
	}
}

// TestRefusedAddresses: where a cloud keeps its secrets and where the gateway
// itself listens nobody is sent, in no spelling. That the answer is a denial of
// Check proves that nothing was connected.
func TestRefusedAddresses(t *testing.T) {
	_, port, _ := net.SplitHostPort(shared.addr)
	admin := closedPort(t)
	g := start(t, "ARBITER_ADMIN_LISTEN="+admin)
	_, adminPort, _ := net.SplitHostPort(admin)
	_, ownPort, _ := net.SplitHostPort(g.addr)
	for _, url := range []string{
		"http://169.254.169.254/latest/meta-data", "http://[::ffff:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]/",
		"http://[fd00:ec2::254]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::]/", "http://169.254.1.1/", "http://[fe80::1]/",
		"http://2852039166/", "http://0xa9fea9fe/", "http://0251.0376.0251.0376/", "http://169.254.43518/",
		"https://127.0.0.1:" + ownPort + "/", "https://localhost:" + ownPort + "/", "https://0.0.0.0:" + ownPort + "/", "https://[::]:" + ownPort + "/",
		"https://[::ffff:127.0.0.1]:" + ownPort + "/", "https://[::ffff:0:0]:" + ownPort + "/", "https://127.1:" + ownPort + "/", "https://2130706433:" + ownPort + "/",
		"http://127.0.0.1:" + adminPort + "/metrics", "http://localhost:" + adminPort + "/metrics", "http://[::ffff:7f00:1]:" + adminPort + "/metrics",
		"http://0.0.0.0:" + port + "/", "http://255.255.255.255/", "http://224.0.0.1/", "http://[ff02::1]/",
	} {
		t.Run(url, func(t *testing.T) {
			out, err := g.cli(t, "", "server", "add", "at-"+strings.Map(letters, url), "--rpc", url, "--json")
			if err != nil {
				return // refused when it was given
			}
			server := reply{body: out}.message(t)["id"].(string)
			_, token := g.addToken(t, server)
			got := g.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")})
			if got.status != 502 || got.code() != -31502 || got.header.Get("Arbiter-Decision") != "deny" {
				t.Errorf("status %d, decision %q, body %s", got.status, got.header.Get("Arbiter-Decision"), got.body)
			}
		})
	}
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
		return r
	}
	return '-'
}

// TestUpstreamNetworksAreHeld: with a list only what it has is reached.
func TestUpstreamNetworksAreHeld(t *testing.T) {
	g := start(t, "ARBITER_UPSTREAM_NETWORKS=127.0.0.2/32,10.0.0.0/8")
	for listen, want := range map[string]int{"127.0.0.2:0": 200, "127.0.0.3:0": 502} {
		echo := testfleet.NewEcho(t, testfleet.Config{Listen: listen})
		server := g.addServer(t, "", echo.Origin())
		_, token := g.addToken(t, server)
		got := g.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")})
		if got.status != want || (len(echo.Requests()) > 0) != (want == 200) {
			t.Errorf("%s: status %d, %d requests arrived", listen, got.status, len(echo.Requests()))
		}
	}
}

// TestUpstreamOverTLS: the certificate must name the host of the record and
// come from the authority of the record; nothing else is reached.
func TestUpstreamOverTLS(t *testing.T) {
	ours, other := testfleet.NewAuthority(t, "ours"), testfleet.NewAuthority(t, "other")
	listen := func(c tls.Certificate) *testfleet.Echo { return testfleet.NewEcho(t, testfleet.Config{TLS: &c}) }
	byName := func(e *testfleet.Echo) string { return strings.Replace(e.Origin(), "127.0.0.1", "localhost", 1) }
	byIP := func(e *testfleet.Echo) string { return e.Origin() }
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, test := range []struct {
		name string
		leaf tls.Certificate
		url  func(*testfleet.Echo) string
		ca   *testfleet.Authority // nil: the system's
		sni  string
		want int
	}{
		{"by name", ours.Leaf(t, "localhost"), byName, ours, "localhost", 200},
		{"by address", ours.Leaf(t, "127.0.0.1"), byIP, ours, "", 200},
		{"another name", ours.Leaf(t, "elsewhere.example"), byName, ours, "", 502},
		{"another address", ours.Leaf(t, "127.0.0.9"), byIP, ours, "", 502},
		{"a name where an address is dialled", ours.Leaf(t, "localhost"), byIP, ours, "", 502},
		{"no name at all", ours.Leaf(t), byName, ours, "", 502},
		{"another authority", other.Leaf(t, "localhost"), byName, ours, "", 502},
		{"the system's roots", ours.Leaf(t, "localhost"), byName, nil, "", 502},
		{"expired", ours.LeafFor(t, past.Add(-time.Hour), past, "localhost"), byName, ours, "", 502},
		{"not yet", ours.LeafFor(t, future, future.Add(time.Hour), "localhost"), byName, ours, "", 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			echo := listen(test.leaf)
			var flags []string
			if test.ca != nil {
				flags = []string{"--ca", test.ca.File(t)}
			}
			server := shared.addServer(t, "", test.url(echo)+"/base", flags...)
			_, token := shared.addToken(t, server)
			got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")})
			if got.status != test.want {
				t.Errorf("status %d, body %s", got.status, got.body)
			}
			requests := echo.Requests()
			if (len(requests) > 0) != (test.want == 200) {
				t.Errorf("%d requests arrived", len(requests))
			}
			if len(requests) > 0 && requests[0].ServerName != test.sni {
				t.Errorf("SNI %q, want %q", requests[0].ServerName, test.sni)
			}
		})
	}
}

// TestChangedAuthority: when the API has answered, the new authority counts and
// the old one does not, on connections that were open before too.
func TestChangedAuthority(t *testing.T) {
	first, second := testfleet.NewAuthority(t, "first"), testfleet.NewAuthority(t, "second")
	leaf := first.Leaf(t, "localhost")
	echo := testfleet.NewEcho(t, testfleet.Config{TLS: &leaf})
	server := shared.addServer(t, "", strings.Replace(echo.Origin(), "127.0.0.1", "localhost", 1), "--ca", first.File(t))
	_, token := shared.addToken(t, server)
	for _, step := range []struct {
		ca   *testfleet.Authority
		want int
	}{{first, 200}, {second, 502}, {first, 200}, {second, 502}} {
		changed := shared.object(t, "", "server", "update", server, "--ca", step.ca.File(t))
		if changed["applied"] != true {
			t.Errorf("not applied: %v", changed["reason"])
		}
		for range 3 {
			got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")})
			if got.status != step.want {
				t.Errorf("status %d, want %d; body %s", got.status, step.want, got.body)
			}
		}
	}
}

// TestPagesCanReadAnswersOfOurs: a page of an allowed origin reads what became
// of its request, also when the upstream's answer was replaced.
func TestPagesCanReadAnswersOfOurs(t *testing.T) {
	const page = "https://app.example"
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	for _, test := range []struct {
		behaviour string
		status    int
	}{{"headers", 200}, {"json-500", 500}, {"close", 502}, {"html-200", 502}, {"html-500", 500}, {"401", 502}} {
		t.Run(test.behaviour, func(t *testing.T) {
			server := shared.addServer(t, "", hostile.URL(t, test.behaviour), "--origin", page)
			_, token := shared.addToken(t, server)
			got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("7", "ping", ""), header: map[string]string{"Origin": page}})
			if got.status != test.status {
				t.Errorf("status %d", got.status)
			}
			if allowed := got.header.Values("Access-Control-Allow-Origin"); len(allowed) != 1 || allowed[0] != page {
				t.Errorf("Access-Control-Allow-Origin %q", allowed)
			}
			if len(got.header.Values("Access-Control-Allow-Credentials")) > 0 {
				t.Error("credentials mode was allowed")
			}
			if exposed := got.header.Values("Access-Control-Expose-Headers"); len(exposed) != 1 || !strings.Contains(exposed[0], "arbiter-request-id") {
				t.Errorf("Access-Control-Expose-Headers %q", exposed)
			}
		})
	}
}

// TestUpstreamSpeaksHTTP2 by ALPN, trailers and all.
func TestUpstreamSpeaksHTTP2(t *testing.T) {
	ours := testfleet.NewAuthority(t, "ours")
	leaf := ours.Leaf(t, "localhost")
	origin := testfleet.NewHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Trailer", "Arbiter-Decision")
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{"proto":"`+r.Proto+`"}}`)
		w.Header().Set("Arbiter-Decision", "late")
	}), &leaf)
	server := shared.addServer(t, "", strings.Replace(origin, "127.0.0.1", "localhost", 1), "--ca", ours.File(t))
	_, token := shared.addToken(t, server)
	for _, http2 := range []bool{false, true} {
		got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("7", "ping", ""), http2: http2})
		if got.status != 200 || !strings.Contains(got.body, "HTTP/2.0") {
			t.Errorf("status %d, body %s", got.status, got.body)
		}
		checkClean(t, got)
	}
}
