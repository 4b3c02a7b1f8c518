package testfleet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// EchoSession is the session id that Echo gives on initialize.
const EchoSession = "echo-session-1"

// Echo keeps the requests it gets, byte for byte, and answers each like a small
// MCP server: initialize with a session, any other request with an empty
// result, a notification with 202, GET with an SSE stream of one event that
// stays open, DELETE with 204.
type Echo struct {
	wire *wire

	mu       sync.Mutex // guards requests and arrived
	requests []Request
	arrived  chan struct{} // closed and replaced with each request
}

// NewEcho serves until the test ends.
func NewEcho(t testing.TB, c Config) *Echo {
	t.Helper()
	e := &Echo{arrived: make(chan struct{})}
	e.wire = listen(t, c, e.serve)
	return e
}

// Origin is "scheme://ip:port"; every path and method is answered.
func (e *Echo) Origin() string { return e.wire.origin() }

// Addr is the "ip:port".
func (e *Echo) Addr() string { return e.wire.addr() }

// Requests are all requests so far, in the order they were read.
func (e *Echo) Requests() []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Request(nil), e.requests...)
}

// Wait returns the requests as soon as there are n of them.
func (e *Echo) Wait(ctx context.Context, n int) ([]Request, error) {
	for {
		e.mu.Lock()
		requests, arrived := append([]Request(nil), e.requests...), e.arrived
		e.mu.Unlock()
		if len(requests) >= n {
			return requests, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return requests, fmt.Errorf("%d of %d requests came: %w", len(requests), n, ctx.Err())
		}
	}
}

// Reset forgets the requests so far.
func (e *Echo) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = nil
}

func (e *Echo) keep(r Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, r)
	close(e.arrived)
	e.arrived = make(chan struct{})
}

func (e *Echo) serve(c *wireConn) {
	for {
		r, err := c.read()
		if err != nil {
			return
		}
		e.keep(r)
		if decent(c, r) != nil {
			return
		}
	}
}

// decent answers as a well-behaved MCP server with sessions would.
func decent(c *wireConn, r Request) error {
	m := r.message()
	switch {
	case r.Method == http.MethodGet:
		err := c.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%s", chunk(event(1)))
		c.untilGone()
		return err
	case r.Method == http.MethodDelete:
		return c.send("HTTP/1.1 204 No Content\r\n\r\n")
	case m.Method == "initialize":
		return c.send("%s", jsonAnswer(initializeResult(m, ""), "Mcp-Session-Id: "+EchoSession))
	case strings.HasPrefix(strings.TrimSpace(string(r.Body)), "["):
		return c.send("%s", jsonAnswer(`[]`))
	case m.ID == nil:
		return c.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
	}
	return c.send("%s", jsonAnswer(result(m)))
}

// result is the decent answer to the request m.
func result(m message) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id(m))
}

// initializeResult answers the handshake m; padding makes it longer.
func initializeResult(m message, padding string) string {
	revision := m.Params.ProtocolVersion
	if revision == "" {
		revision = "2025-11-25"
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},`+
		`"serverInfo":{"name":"testfleet","version":"1"},"instructions":%q}}`, id(m), revision, padding)
}

func id(m message) string {
	if m.ID == nil {
		return "null"
	}
	return string(m.ID)
}

// jsonAnswer is a whole 200 answer with body and the given header lines.
func jsonAnswer(body string, lines ...string) string {
	return answer("200 OK", append(lines, "Content-Type: application/json"), body)
}

func answer(status string, lines []string, body string) string {
	head := append([]string{"HTTP/1.1 " + status}, lines...)
	return strings.Join(append(head, fmt.Sprintf("Content-Length: %d", len(body))), "\r\n") + "\r\n\r\n" + body
}

// event is the n-th event of a stream: a log notification.
func event(n int) string {
	return fmt.Sprintf("event: message\nid: %d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\","+
		"\"params\":{\"level\":\"info\",\"data\":\"event %d\"}}\n\n", n, n)
}

// chunk frames text for Transfer-Encoding: chunked.
func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
