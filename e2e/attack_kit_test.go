//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// front is a server of a test's own in the shared gateway. Its upstream keeps
// every request, so a test sees what got past the gateway.
type front struct {
	*gateway
	server, token string
	echo          *testfleet.Echo
}

// newFront registers an Echo for both paths and makes a token.
func newFront(t *testing.T, flags ...string) front {
	t.Helper()
	return frontOf(t, testfleet.NewEcho(t, testfleet.Config{}), flags...)
}

func frontOf(t *testing.T, echo *testfleet.Echo, flags ...string) front {
	t.Helper()
	f := front{gateway: shared, echo: echo}
	f.server = f.addServer(t, echo.Origin()+"/base/mcp", echo.Origin()+"/base/rpc", flags...)
	_, f.token = f.addToken(t, f.server)
	return f
}

func (f front) rpc() string { return "/servers/" + f.server + "/rpc" }
func (f front) mcp() string { return "/servers/" + f.server + "/mcp" }

// onRPC sends a body to /rpc with the front's token.
func (f front) onRPC(t *testing.T, body string) reply {
	t.Helper()
	return f.do(t, call{path: f.rpc(), token: f.token, body: body})
}

// onMCP sends a body to /mcp within a session.
func (f front) onMCP(t *testing.T, session, body string) reply {
	t.Helper()
	return f.do(t, call{path: f.mcp(), token: f.token, body: body, header: map[string]string{"Mcp-Session-Id": session}})
}

// untouched runs an attack and fails if the upstream saw anything of it. What
// was smuggled would come before a good request that is sent afterwards, and
// which shows too that the gateway still lets good ones through.
func (f front) untouched(t *testing.T, attack func()) {
	t.Helper()
	f.echo.Reset()
	attack()
	const marker = `{"jsonrpc":"2.0","id":"marker","method":"ping"}`
	if got := f.onRPC(t, marker); got.status != 200 {
		t.Fatalf("a good request after the attack: status %d, body %s", got.status, got.body)
	}
	for _, r := range f.echo.Requests() {
		if string(r.Body) != marker {
			t.Errorf("the upstream saw %s %s %q %.200q", r.Method, r.Target, r.Fields, r.Body)
		}
	}
}

// seen sends a good request and returns what the upstream got of it.
func (f front) seen(t *testing.T, c call) testfleet.Request {
	t.Helper()
	f.echo.Reset()
	got := f.do(t, c)
	if got.status < 200 || got.status > 299 {
		t.Fatalf("status %d, body %s, want it let through", got.status, got.body)
	}
	return f.last(t)
}

// last is the one request that the upstream got since it was reset.
func (f front) last(t *testing.T) testfleet.Request {
	t.Helper()
	requests := f.echo.Requests()
	if len(requests) != 1 {
		t.Fatalf("the upstream saw %d requests, want 1", len(requests))
	}
	return requests[0]
}

// refused checks status and JSON-RPC code (0: any body) of a denial of Check.
func refused(t *testing.T, got reply, status, code int) {
	t.Helper()
	if got.status != status || (code != 0 && got.code() != code) {
		t.Errorf("status %d, body %.300s, want %d with code %d", got.status, got.body, status, code)
	}
	marked(t, got, "deny")
}

// marked checks the gateway's own headers: each there exactly once.
func marked(t *testing.T, got reply, decision string) {
	t.Helper()
	if d := got.header.Values("Arbiter-Decision"); len(d) != 1 || d[0] != decision {
		t.Errorf("arbiter-decision %q, want %q once", d, decision)
	}
	if id := got.header.Values("Arbiter-Request-Id"); len(id) != 1 || id[0] == "" {
		t.Errorf("arbiter-request-id %q, want one", id)
	}
}

// head is the start of a raw HTTP/1.1 request up to, not including, the empty
// line. The connection closes after the answer.
func (f front) head(method, target string, lines ...string) string {
	all := append([]string{method + " " + target + " HTTP/1.1", "Connection: close"}, lines...)
	return strings.Join(all, "\r\n") + "\r\n"
}

// post is a whole raw POST; it has Host, credential and what else a good one
// needs, then lines.
func (f front) post(target, body string, lines ...string) string {
	good := []string{
		"Host: " + f.authority(), "Authorization: Bearer " + f.token, "Content-Type: application/json",
		"Accept: application/json, text/event-stream", "Content-Length: " + strconv.Itoa(len(body)),
	}
	return f.head("POST", target, append(good, lines...)...) + "\r\n" + body
}

// authority is what a proper client sends as Host.
func (g *gateway) authority() string { return strings.TrimPrefix(g.base, "https://") }

const quiet = 2 * time.Second

// wire sends raw bytes over HTTP/1.1 and parses all answers.
func (g *gateway) wire(t *testing.T, request string) []reply {
	t.Helper()
	in := bufio.NewReader(strings.NewReader(g.raw(t, request, quiet)))
	method, _, _ := strings.Cut(request, " ")
	var all []reply
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return all
		}
		body, _ := io.ReadAll(resp.Body) // what came of it
		_ = resp.Body.Close()
		all = append(all, reply{resp.StatusCode, resp.Header, string(body)})
	}
}

// first is the answer to raw bytes of which one is expected.
func (g *gateway) first(t *testing.T, request string) reply {
	t.Helper()
	all := g.wire(t, request)
	if len(all) != 1 {
		t.Fatalf("%d answers to %.300q, want 1: %v", len(all), request, all)
	}
	return all[0]
}

// h2 is one request as HTTP/2 frames: fields as they are given, a body in one
// DATA frame, trailers.
type h2 struct {
	fields   [][2]string
	body     string
	trailers [][2]string
}

// fields are those of a good HTTP/2 request, with more behind them.
func (f front) fields(method, path string, more ...[2]string) [][2]string {
	return append([][2]string{
		{":method", method},
		{":scheme", "https"},
		{":authority", f.authority()},
		{":path", path},
		{"authorization", "Bearer " + f.token},
		{"content-type", "application/json"},
		{"accept", "application/json, text/event-stream"},
	}, more...)
}

// frames sends a request. The status is 0 for a stream or connection that the
// gateway resets.
func (g *gateway) frames(t *testing.T, r h2) reply {
	t.Helper()
	conn, err := tls.Dial("tcp", g.addr, &tls.Config{RootCAs: g.roots, ServerName: "localhost", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	err = errors.Join(framer.WriteSettings(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(r.fields), EndHeaders: true, EndStream: r.body == ""}))
	if r.body != "" {
		err = errors.Join(err, framer.WriteData(1, r.trailers == nil, []byte(r.body)))
	}
	if r.trailers != nil {
		err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(r.trailers), EndHeaders: true, EndStream: true}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return readFrames(framer)
}

func block(fields [][2]string) []byte {
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	for _, f := range fields {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a bytes.Buffer takes everything
	}
	return out.Bytes()
}

// readFrames reads the answer on stream 1 until it ends or is reset.
func readFrames(framer *http2.Framer) reply {
	got := reply{header: http.Header{}}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return reply{body: fmt.Sprint(err)}
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			if got.status == 0 {
				return reply{body: frame.String()}
			}
			return got // the rest of the request is not wanted
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				return reply{body: frame.String()}
			}
		case *http2.MetaHeadersFrame:
			for _, f := range frame.Fields {
				if f.Name == ":status" {
					got.status, _ = strconv.Atoi(f.Value)
				} else {
					got.header.Add(f.Name, f.Value)
				}
			}
			if frame.StreamEnded() {
				return got
			}
		case *http2.DataFrame:
			got.body += string(frame.Data())
			if frame.StreamEnded() {
				return got
			}
		}
	}
}
