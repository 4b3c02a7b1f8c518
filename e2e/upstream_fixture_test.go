//go:build e2e

package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// closedPort is an "ip:port" where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	addr, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// session2 initialises on /mcp and says nothing more.
func (g *gateway) session2(t *testing.T, server, token string) string {
	t.Helper()
	got := g.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: initialize})
	id := got.header.Get("Mcp-Session-Id")
	if got.status != 200 || id == "" {
		t.Fatalf("initialize: status %d, session %q, body %s", got.status, id, got.body)
	}
	return id
}

// eventually waits until done, at most for limit.
func eventually(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	if !soon(limit, done) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}

func soon(limit time.Duration, done func() bool) bool {
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// overSocket speaks HTTP over a unix socket.
func overSocket(path string) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// temp writes a file that lives as long as the test.
func temp(t *testing.T, text string) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}
