//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const hardLimit = 4 << 20

// sized is a request whose body has exactly n bytes.
func sized(n int) string {
	const around = `{"jsonrpc":"2.0","id":77,"method":"ping","x":""}`
	return strings.Replace(around, `"x":"`, `"x":"`+strings.Repeat("x", n-len(around)), 1)
}

// stream sends a body over HTTP/1.1 or 2, with or without saying how long it is.
func (f front) stream(t *testing.T, path, body string, http2, known bool) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.base+path, io.NopCloser(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	if known {
		req.ContentLength = int64(len(body))
	}
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := (&http.Client{Transport: f.transport(t, http2)}).Do(req)
	if err != nil {
		return reply{body: err.Error()} // a reset is a refusal too
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // what came of it
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// Over HTTP/2 Envoy lets what is a little over its own cap through whole, with
// Check seeing it cut: none of it may reach the upstream.
func TestGatewayRefusesBodiesOverTheHardLimit(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, over := range []int{0, 1, 2, 1 << 10, 4 << 10, 8 << 10, 15 << 10, 16 << 10, 17 << 10, 64 << 10, 1 << 20} {
		for _, http2 := range []bool{false, true} {
			for _, known := range []bool{false, true} {
				t.Run(fmt.Sprintf("over %d http2 %v length %v", over, http2, known), func(t *testing.T) {
					body := sized(hardLimit + over)
					if over == 0 {
						f.echo.Reset()
						if got := f.stream(t, f.rpc(), body, http2, known); got.status != 200 || len(f.last(t).Body) != hardLimit {
							t.Errorf("the longest that is allowed: status %d, body %s", got.status, got.body)
						}
						return
					}
					f.untouched(t, func() {
						got := f.stream(t, f.rpc(), body, http2, known)
						if got.status != 0 && (got.status != 413 || got.code() != -31413) {
							t.Errorf("status %d, body %s, want 413 with code -31413", got.status, got.body)
						}
					})
				})
			}
		}
	}
}

// A server's own limit lies below, so the id can be echoed.
func TestGatewayRefusesBodiesOverTheServersLimit(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--max-body", "2KiB")
	session := f.session(t, f.server, f.token)
	for _, http2 := range []bool{false, true} {
		for _, known := range []bool{false, true} {
			f.echo.Reset()
			if got := f.stream(t, f.rpc(), sized(2<<10), http2, known); got.status != 200 || len(f.last(t).Body) != 2<<10 {
				t.Errorf("the longest that is allowed: status %d, body %s", got.status, got.body)
			}
			for _, size := range []int{2<<10 + 1, 64 << 10, 1 << 20} {
				f.untouched(t, func() {
					got := f.stream(t, f.rpc(), sized(size), http2, known)
					refused(t, got, 413, -31413)
					if !strings.Contains(got.body, `"id":77,`) {
						t.Errorf("%d bytes: body %s, want the id 77", size, got.body)
					}
				})
			}
		}
	}
	f.untouched(t, func() {
		got := f.onMCP(t, session, sized(3<<10))
		refused(t, got, 413, -31413)
		if !strings.Contains(got.body, `"id":77,`) {
			t.Errorf("/mcp: body %s, want the id 77", got.body)
		}
		got = f.onRPC(t, "["+sized(3<<10)+"]")
		refused(t, got, 413, -31413)
		if !strings.Contains(got.body, `"id":null,`) {
			t.Errorf("a batch: body %s, want no id", got.body)
		}
		refused(t, f.onRPC(t, sized(3<<10)+"}"), 413, -31413)
	})
}

// One after another is how chunks come; the reading must not depend on it.
func TestGatewayReadsChunkedBodiesWhole(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	head := f.head("POST", f.rpc(), "Host: "+f.authority(), "Authorization: Bearer "+f.token, "Content-Type: application/json", "Transfer-Encoding: chunked")
	var chunks strings.Builder
	for _, c := range ping {
		fmt.Fprintf(&chunks, "1;ext=\"x\"\r\n%c\r\n", c)
	}
	f.echo.Reset()
	if got := f.first(t, head+"\r\n"+chunks.String()+"0\r\n\r\n"); got.status != 200 || string(f.last(t).Body) != ping {
		t.Errorf("status %d, body %s, want 200", got.status, got.body)
	}
	f.untouched(t, func() {
		second := strings.ReplaceAll(chunks.String(), "g\r\n", "G\r\n") // the body is read, not its framing
		if got := f.first(t, head+"\r\n"+second+second+"0\r\n\r\n"); got.status != 400 || got.code() != -32700 {
			t.Errorf("two messages in chunks: status %d, body %s", got.status, got.body)
		}
	})
}

// A body that never ends is not waited for, and is no decision.
func TestGatewayEndsStalledRequests(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for _, tt := range []struct{ name, request string }{
		{"body", strings.TrimSuffix(f.post(f.rpc(), ping), "}")},
		{"body of a GET", f.head("GET", f.mcp(), "Host: "+f.authority(), "Authorization: Bearer "+f.token, "Accept: text/event-stream", "Content-Length: 10") + "\r\nx"},
		{"chunk", f.head("POST", f.rpc(), "Host: "+f.authority(), "Authorization: Bearer "+f.token, "Content-Type: application/json", "Transfer-Encoding: chunked") + "\r\n28\r\n{"},
		{"headers", f.head("POST", f.rpc(), "Host: "+f.authority())},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conn, err := tls.Dial("tcp", f.addr, &tls.Config{RootCAs: f.roots, ServerName: "localhost", NextProtos: []string{"http/1.1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(25 * time.Second))
			if _, err := io.WriteString(conn, tt.request); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
				t.Errorf("%v, %q, want 408 and the end of the connection", err, answer)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(f.echo.Requests()); n > 0 {
			t.Errorf("the upstream saw %d requests", n)
		}
	})
}

func TestGatewayReadsNothingBehindExpect(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.echo.Reset()
	answer := f.raw(t, f.post(f.rpc(), ping, "Expect: 100-continue"), quiet)
	if !strings.Contains(answer, "HTTP/1.1 200 ") || string(f.last(t).Body) != ping || f.last(t).Value("Expect") != "" {
		t.Errorf("answer %q", answer)
	}
	f.untouched(t, func() {
		noToken := strings.Replace(f.post(f.rpc(), ping, "Expect: 100-continue"), "Authorization: Bearer "+f.token+"\r\n", "", 1)
		if answer := f.raw(t, noToken, quiet); !strings.Contains(answer, "HTTP/1.1 401 ") {
			t.Errorf("without a credential: answer %q", answer)
		}
	})
}
