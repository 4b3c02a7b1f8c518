// Package testfleet is the fleet of upstreams that tests put behind the
// gateway: Echo keeps every request byte for byte, Hostile answers as no decent
// server would, Relay breaks connections on command, Authority signs whatever
// certificate is wanted.
//
// Place in the flow: it stands where MCP servers and networks stand. Echo and
// Hostile speak HTTP/1.1 by hand, because net/http would repair what they are
// here to get wrong or to see. Only tests import it; it trusts them.
package testfleet

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	maxHead = 1 << 20  // bytes of a request's head
	maxBody = 64 << 20 // bytes of a request's body
)

// Config says how an upstream listens.
type Config struct {
	// Listen is an "ip:port", or the path of a unix socket. Default "127.0.0.1:0".
	Listen string
	// TLS, if set, is spoken on every connection, with ALPN for HTTP/1.1 only.
	TLS *tls.Certificate
}

// Field is a header field as it came: neither the name nor the value is changed.
type Field struct{ Name, Value string }

// Request is one request, byte for byte.
type Request struct {
	Method, Target, Proto string
	Fields                []Field // in the order they came
	Body                  []byte  // without chunk framing
	Trailers              []Field
	ServerName            string // what a TLS client asked for (SNI); empty without TLS
}

// Values are the values of every field called name, in any case.
func (r Request) Values(name string) []string {
	var values []string
	for _, field := range r.Fields {
		if strings.EqualFold(field.Name, name) {
			values = append(values, field.Value)
		}
	}
	return values
}

// Value is the first of Values, or empty.
func (r Request) Value(name string) string {
	if values := r.Values(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// message is what an upstream reads of a JSON-RPC message; zero for a batch and
// whatever is not JSON.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params params          `json:"params"`
}

type params struct {
	ProtocolVersion string `json:"protocolVersion"`
}

// UnmarshalJSON takes params by position for none.
func (p *params) UnmarshalJSON(text []byte) error {
	type byName params
	if len(text) > 0 && text[0] == '[' {
		return nil
	}
	return json.Unmarshal(text, (*byName)(p))
}

func (r Request) message() message {
	var m message
	if json.Unmarshal(r.Body, &m) != nil {
		return message{}
	}
	return m
}

// wire accepts connections and hands each to serve; what serve does not close,
// close does.
type wire struct {
	listener net.Listener
	secure   bool
	serving  sync.WaitGroup

	mu     sync.Mutex // guards open and closed
	open   map[net.Conn]bool
	closed bool
}

func listen(t testing.TB, c Config, serve func(*wireConn)) *wire {
	t.Helper()
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), network(c.Listen), c.Listen)
	if err != nil {
		t.Fatalf("test upstream: %v", err)
	}
	w := &wire{listener: listener, secure: c.TLS != nil, open: make(map[net.Conn]bool)}
	if c.TLS != nil {
		listener = tls.NewListener(listener, &tls.Config{
			Certificates: []tls.Certificate{*c.TLS}, NextProtos: []string{"http/1.1"},
		})
	}
	w.serving.Go(func() { w.accept(listener, serve) })
	t.Cleanup(w.close)
	return w
}

func (w *wire) accept(listener net.Listener, serve func(*wireConn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if !w.keep(conn) {
			return
		}
		w.serving.Go(func() {
			defer w.drop(conn)
			serve(&wireConn{Conn: conn, in: bufio.NewReader(conn)})
		})
	}
}

func (w *wire) keep(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = conn.Close()
		return false
	}
	w.open[conn] = true
	return true
}

func (w *wire) drop(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, conn)
	_ = conn.Close()
}

// cut closes every connection there is and says how many those were.
func (w *wire) cut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.open {
		_ = conn.Close()
	}
	return len(w.open)
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cut()
	w.serving.Wait()
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) origin() string {
	if w.secure {
		return "https://" + w.addr()
	}
	return "http://" + w.addr()
}

// wireConn is one connection with its buffered reader.
type wireConn struct {
	net.Conn
	in *bufio.Reader
}

// read reads one request. The error is io.EOF when the client is done.
func (c *wireConn) read() (Request, error) {
	var r Request
	line, err := c.line()
	if err != nil {
		return r, err
	}
	parts := strings.SplitN(line, " ", 3)
	if len(parts) != 3 {
		return r, fmt.Errorf("request line %q", line)
	}
	r.Method, r.Target, r.Proto = parts[0], parts[1], parts[2]
	if r.Fields, err = c.fields(); err != nil {
		return r, err
	}
	if conn, ok := c.Conn.(*tls.Conn); ok {
		r.ServerName = conn.ConnectionState().ServerName
	}
	return r, c.readBody(&r)
}

func (c *wireConn) readBody(r *Request) error {
	if strings.EqualFold(r.Value("Transfer-Encoding"), "chunked") {
		body, err := io.ReadAll(io.LimitReader(httputil.NewChunkedReader(c.in), maxBody))
		if err != nil {
			return err
		}
		r.Body = body
		r.Trailers, err = c.fields()
		return err
	}
	if len(r.Values("Content-Length")) == 0 {
		return nil
	}
	length, err := strconv.Atoi(r.Value("Content-Length"))
	if err != nil {
		return err
	}
	if length < 0 || length > maxBody {
		return fmt.Errorf("content-length %d", length)
	}
	r.Body = make([]byte, length)
	_, err = io.ReadFull(c.in, r.Body)
	return err
}

func (c *wireConn) fields() ([]Field, error) {
	var fields []Field
	for size := 0; ; {
		line, err := c.line()
		if err != nil || line == "" {
			return fields, err
		}
		if size += len(line); size > maxHead {
			return nil, fmt.Errorf("request head over %d bytes", maxHead)
		}
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, Field{Name: name, Value: strings.TrimLeft(value, " \t")})
	}
}

func (c *wireConn) line() (string, error) {
	var line bytes.Buffer
	for {
		part, err := c.in.ReadSlice('\n')
		line.Write(part)
		switch {
		case err == nil:
			return strings.TrimRight(line.String(), "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull) || line.Len() > maxHead:
			return "", err
		}
	}
}

// send writes text as it is. Its error says that the peer is gone.
func (c *wireConn) send(format string, args ...any) error {
	_, err := fmt.Fprintf(c, format, args...)
	return err
}

// untilGone waits for the peer to close, or for the test to end.
func (c *wireConn) untilGone() { _, _ = io.Copy(io.Discard, c.in) }

// NewHTTP serves handler for as long as the test runs, and returns its origin.
// With a certificate it speaks TLS, with HTTP/2 by ALPN. It is for upstreams
// that need nothing strange.
func NewHTTP(t testing.TB, handler http.Handler, certificate *tls.Certificate) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	if certificate == nil {
		server.Start()
	} else {
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}}
		server.StartTLS()
	}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
