package testfleet_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// fetch makes one request as config says and returns "HTTP/1.1 200 OK".
func fetch(t *testing.T, config *tls.Config, method, url, body string) (string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Proto + " " + resp.Status, err
}

// exchange sends bytes and returns all that comes back until the other side
// closes, or until it has said what is wanted.
func exchange(t *testing.T, addr, send, until string) string {
	t.Helper()
	conn := dial(t, addr)
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, send); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	buf := make([]byte, 32<<10)
	for until == "" || !strings.Contains(got.String(), until) {
		n, err := conn.Read(buf)
		got.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
	}
	return got.String()
}

func post(target, body string, lines ...string) string {
	head := append([]string{"POST " + target + " HTTP/1.1", "Host: x"}, lines...)
	return strings.Join(append(head, fmt.Sprintf("Content-Length: %d", len(body))), "\r\n") + "\r\n\r\n" + body
}

const (
	initialize = `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`
	call       = `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"x"}}`
)

func TestEchoKeepsRequestsByteForByte(t *testing.T) {
	echo := testfleet.NewEcho(t, testfleet.Config{})
	body := `{"jsonrpc":"2.0","id":8,"method":"ping"}`
	exchange(t, echo.Addr(), post("/a//b/../c?x=%2f", body, "x-MiXed:  two  ", "X-Mixed: three"), "result")
	exchange(t, echo.Addr(), "POST /t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Late: 1\r\n\r\n", "202")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := echo.Wait(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	first, second := got[0], got[1]
	if first.Method != http.MethodPost || first.Target != "/a//b/../c?x=%2f" || first.Proto != "HTTP/1.1" || string(first.Body) != body {
		t.Errorf("first request %+v", first)
	}
	want := []testfleet.Field{{Name: "Host", Value: "x"}, {Name: "x-MiXed", Value: "two  "}, {Name: "X-Mixed", Value: "three"}}
	if !slices.Equal(first.Fields[:3], want) || !slices.Equal(first.Values("x-mixed"), []string{"two  ", "three"}) {
		t.Errorf("fields %q", first.Fields)
	}
	if string(second.Body) != "abc" || !slices.Equal(second.Trailers, []testfleet.Field{{Name: "X-Late", Value: "1"}}) {
		t.Errorf("second request %+v", second)
	}
	echo.Reset()
	if left := echo.Requests(); len(left) != 0 {
		t.Errorf("after Reset: %+v", left)
	}
}

func TestEchoAnswersLikeAServer(t *testing.T) {
	echo := testfleet.NewEcho(t, testfleet.Config{})
	for _, test := range []struct{ name, send, want string }{
		{"initialize", post("/", initialize), "Mcp-Session-Id: " + testfleet.EchoSession},
		{"request", post("/", call), `{"jsonrpc":"2.0","id":8,"result":{}}`},
		{"notification", post("/", `{"jsonrpc":"2.0","method":"x"}`), "HTTP/1.1 202"},
		{"batch", post("/", "["+call+"]"), "[]"},
		{"GET", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "event 1"},
		{"DELETE", "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 204"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := exchange(t, echo.Addr(), test.send, test.want); !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q in it", got, test.want)
			}
		})
	}
}

func TestHostileBehaviours(t *testing.T) {
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	for _, test := range []struct{ behaviour, send, want string }{
		{"401", call, `WWW-Authenticate: Bearer realm="evil"`},
		{"302", call, "Location: https://evil.example/mcp"},
		{"cookie", call, `{"jsonrpc":"2.0","id":8,"result":{}}`},
		{"headers", call, "Arbiter-Decision: allow\r\n"},
		{"huge-header", call, strings.Repeat("h", 64<<10)},
		{"garbage", call, "not HTTP"},
		{"close-in-headers", call, "application/js"},
		{"length-too-small", call, "X-Smuggled"},
		{"http-1.0", call, "HTTP/1.0 200"},
		{"informational", call, "103 Early Hints"},
		{"trailers", call, "0\r\nArbiter-Decision: allow"},
		{"gzip", call, "Content-Encoding: gzip\r\n"},
		{"hang-after-headers", call, "chunked\r\n\r\n"},
		{"dribble", call, "1\r\nj\r\n1\r\ns"},
		{"endless-202", call, "1\r\nx\r\n1\r\nx"},
		{"sse", call, "event 4"},
		{"sse-cut", call, "event 3"},
		{"session-everywhere", call, "Mcp-Session-Id: upstream-session"},
		{"session-2048", initialize, strings.Repeat("s", 2048)},
		{"session-control", initialize, "up\x01stream\x7f"},
		{"session-none", initialize, `"id":7,"result":{"protocolVersion":"2025-06-18"`},
		{"opener-sse", initialize, `data: {"jsonrpc":"2.0","id":7,"result":{"protocolVersion"`},
		{"opener-big", initialize, strings.Repeat("p", 256<<10)},
		{"opener-error", initialize, `"id":7,"error"`},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			url := hostile.URL(t, test.behaviour)
			path := strings.TrimPrefix(url, "http://"+hostile.Addr())
			if got := exchange(t, hostile.Addr(), post(path, test.send), test.want); !strings.Contains(got, test.want) {
				t.Errorf("%.300q, want %.100q in it", got, test.want)
			}
		})
	}
}

// Whatever does not wait for the caller must come to an end by itself; nobody
// outlives the test (goleak).
func TestEveryBehaviourEnds(t *testing.T) {
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	for _, behaviour := range testfleet.Behaviours() {
		conn := dial(t, hostile.Addr())
		if _, err := io.WriteString(conn, post("/"+behaviour, initialize)); err != nil {
			t.Errorf("%s: %v", behaviour, err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // before the fleet's own clean-up
	}
}

func TestHostileOnlyAfterOpening(t *testing.T) {
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	path := strings.TrimPrefix(hostile.AfterOpening(t, "401"), "http://"+hostile.Addr())
	got := exchange(t, hostile.Addr(), post(path, initialize)+post(path, call), "")
	if !strings.Contains(got, `"id":7,"result"`) || !strings.Contains(got, "HTTP/1.1 401") {
		t.Errorf("%q, want a decent opener, then 401", got)
	}
}

func TestRelayCuts(t *testing.T) {
	echo := testfleet.NewEcho(t, testfleet.Config{})
	relay := testfleet.NewRelay(t, echo.Addr())
	conn := dial(t, relay.Addr())
	defer conn.Close()
	if _, err := io.WriteString(conn, post("/", call)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := relay.Cut(); got != 1 {
		t.Errorf("cut %d connections, want 1", got)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives on")
	}
	if got := exchange(t, relay.Addr(), post("/", call), "result"); !strings.Contains(got, "result") {
		t.Errorf("after the cut: %q", got)
	}
}

func TestAuthorityIsCheckedByRealClients(t *testing.T) {
	authority := testfleet.NewAuthority(t, "test CA")
	stranger := testfleet.NewAuthority(t, "another CA")
	leaf := authority.Leaf(t, "127.0.0.1", "tools.example")
	expired := authority.LeafFor(t, time.Now().Add(-time.Hour), time.Now().Add(-time.Minute), "127.0.0.1")
	for _, test := range []struct {
		name string
		leaf tls.Certificate
		ca   *testfleet.Authority
		sni  string
		ok   bool
	}{
		{"good", leaf, authority, "tools.example", true},
		{"wrong name", leaf, authority, "evil.example", false},
		{"unknown authority", leaf, stranger, "tools.example", false},
		{"expired", expired, authority, "127.0.0.1", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			echo := testfleet.NewEcho(t, testfleet.Config{TLS: &test.leaf})
			config := &tls.Config{RootCAs: test.ca.Pool(), ServerName: test.sni}
			_, err := fetch(t, config, http.MethodPost, echo.Origin(), call)
			if (err == nil) != test.ok {
				t.Fatalf("error %v, want none: %t", err, test.ok)
			}
			if err != nil {
				return
			}
			if got := echo.Requests()[0].ServerName; got != test.sni {
				t.Errorf("server name %q, want %q", got, test.sni)
			}
		})
	}
}

func TestHTTPSpeaksHTTP2(t *testing.T) {
	authority := testfleet.NewAuthority(t, "test CA")
	leaf := authority.Leaf(t, "127.0.0.1")
	origin := testfleet.NewHTTP(t, http.NotFoundHandler(), &leaf)
	got, err := fetch(t, &tls.Config{RootCAs: authority.Pool()}, http.MethodGet, origin, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "HTTP/2.0 404 Not Found"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What a relay holds comes later, whole and in order; what it refuses never
// does; and while bytes are held nobody learns that the other end is gone.
func TestRelayHoldsAndRefuses(t *testing.T) {
	dir := t.TempDir()
	target, err := new(net.ListenConfig).Listen(t.Context(), "unix", dir+"/target")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	relay := testfleet.NewSocketRelay(t, dir+"/relay", dir+"/target")
	near, err := new(net.Dialer).DialContext(t.Context(), "unix", relay.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	relay.Hold(true, false)
	if _, err := io.WriteString(near, "one, two"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(far, "down"); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, near, 4); got != "down" {
		t.Errorf("the other direction gave %q", got)
	}
	_ = far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := far.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("held back: %d bytes, %v", n, err)
	}
	relay.Drip(3, time.Millisecond)
	_ = near.Close()
	_ = far.SetReadDeadline(time.Now().Add(patience))
	if got := readAll(t, far, 8); got != "one, two" {
		t.Errorf("let go: %q", got)
	}
	relay.Refuse()
	refused, err := new(net.Dialer).DialContext(t.Context(), "unix", relay.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a refused connection gave bytes")
	}
}

func readAll(t *testing.T, from io.Reader, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(from, buf); err != nil {
		t.Error(err)
	}
	return string(buf)
}
