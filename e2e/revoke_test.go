//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// live are open streams, all over one HTTP/2 connection.
type live struct {
	gateway *gateway
	client  *http.Client
	ctx     context.Context
	cancel  context.CancelFunc

	mu    sync.Mutex // guards open and whole
	open  int        // streams that have not ended
	whole int        // streams that ended as if complete
	done  sync.WaitGroup
}

func (g *gateway) live(t *testing.T) *live {
	t.Helper()
	l := &live{gateway: g, client: &http.Client{Transport: g.transport(t, true)}}
	l.ctx, l.cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(func() {
		l.cancel()
		l.done.Wait()
	})
	return l
}

// begin opens one stream and returns when its headers, and a first line where
// there is one, have come.
func (l *live) begin(t *testing.T, c call) {
	t.Helper()
	resp, err := l.send(c)
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		resp.Body.Close()
		t.Fatalf("status %d, content type %q instead of a stream", resp.StatusCode, kind)
	}
	l.mu.Lock()
	l.open++
	l.mu.Unlock()
	l.done.Go(func() {
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if lines.Err() == nil {
			l.whole++
		}
	})
}

func (l *live) send(c call) (*http.Response, error) {
	method := http.MethodPost
	if c.method != "" {
		method = c.method
	}
	req, err := http.NewRequestWithContext(l.ctx, method, l.gateway.base+c.path, strings.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.body == "" {
		req.Body, req.ContentLength = nil, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	return l.client.Do(req)
}

// counts are the streams that live, and those that ended as if complete.
func (l *live) counts() (open, whole int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.whole
}

// listen opens n GET streams, each in a session of its own.
func (l *live) listen(t *testing.T, server, token string, n int) (session string) {
	t.Helper()
	for range n {
		session = l.session(t, server, token)
		l.begin(t, call{method: "GET", path: "/servers/" + server + "/mcp", token: token, header: map[string]string{"Mcp-Session-Id": session}})
	}
	return session
}

// session initialises over the same connection.
func (l *live) session(t *testing.T, server, token string) string {
	t.Helper()
	c := call{path: "/servers/" + server + "/mcp", token: token, body: initialize}
	opened, err := l.send(c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, opened.Body) // or the handshake is broken off
	if opened.Body.Close(); err != nil {
		t.Fatal(err)
	}
	c.header = map[string]string{"Mcp-Session-Id": opened.Header.Get("Mcp-Session-Id")}
	c.body = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	confirmed, err := l.send(c)
	if err != nil {
		t.Fatal(err)
	}
	confirmed.Body.Close()
	if opened.StatusCode != 200 || confirmed.StatusCode != 202 {
		t.Fatalf("opening a session: status %d, then %d", opened.StatusCode, confirmed.StatusCode)
	}
	return c.header["Mcp-Session-Id"]
}

// slowCall is a call that streams its progress for a minute.
func slowCall(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"steps":600,"delay_ms":100},"_meta":{"progressToken":"p%d"}}}`, id, id)
}

// demoServer is a server of the test's own whose upstream is the demo server.
func (g *gateway) demoServer(t *testing.T) string {
	t.Helper()
	demo := g.object(t, "", "server", "show", "demo")
	return g.addServer(t, demo["mcp"].(string), demo["rpc"].(string))
}

func (g *gateway) refused(t *testing.T, server, token string, status, code int) {
	t.Helper()
	for _, c := range []call{
		{path: "/rpc", body: rpc("1", "ping", "")},
		{path: "/mcp", body: initialize},
		{path: "/mcp", body: rpc("1", "tools/list", ""), header: map[string]string{"Mcp-Session-Id": "x"}},
		{path: "/mcp", method: "GET", header: map[string]string{"Mcp-Session-Id": "x"}},
	} {
		c.path, c.token = "/servers/"+server+c.path, token
		if got := g.do(t, c); got.status != status || got.code() != code || got.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s %s: status %d, body %s; want %d, %d", c.method, c.path, got.status, got.body, status, code)
		}
	}
}

// TestDeletedTokenEndsItsStreams: 100 listening and 20 working streams end, the
// answer counts them, and another token of the same server notices nothing.
func TestDeletedTokenEndsItsStreams(t *testing.T) {
	const gets, posts = 100, 20
	server := shared.demoServer(t)
	id, token := shared.addToken(t, server)
	_, otherToken := shared.addToken(t, server)
	ours, others := shared.live(t), shared.live(t)
	session := ours.listen(t, server, token, gets)
	for i := range posts {
		ours.begin(t, call{path: "/servers/" + server + "/mcp", token: token, body: slowCall(i), header: map[string]string{"Mcp-Session-Id": session}})
	}
	otherSession := others.listen(t, server, otherToken, 3)
	others.begin(t, call{path: "/servers/" + server + "/mcp", token: otherToken, body: slowCall(1), header: map[string]string{"Mcp-Session-Id": otherSession}})

	answer := shared.object(t, "", "token", "delete", server, id)["revocation"].(map[string]any)
	open, whole := ours.counts()
	t.Logf("at the answer %d streams live; it says %v", open, answer)
	shared.refused(t, server, token, 401, -31401)
	eventually(t, 2*time.Second, "the streams of the deleted token end", func() bool { open, whole = ours.counts(); return open == 0 })
	if whole > 0 {
		t.Errorf("%d streams ended as if they were complete", whole)
	}
	if answer["replicas"] != 1.0 || answer["replicas_confirmed"] != 1.0 || answer["streams_ended"] != float64(gets+posts) {
		t.Errorf("the answer says %v", answer)
	}
	if open, _ := others.counts(); open != 4 {
		t.Errorf("%d of 4 streams of the other token live", open)
	}
	got := shared.do(t, call{path: "/servers/" + server + "/mcp", token: otherToken, body: rpc("9", "tools/list", ""), header: map[string]string{"Mcp-Session-Id": otherSession}})
	if got.status != 200 {
		t.Errorf("the other token: status %d, body %s", got.status, got.body)
	}
	if out, err := shared.cli(t, "", "token", "delete", server, id); err == nil {
		t.Errorf("a second delete: %s", out)
	}
}

// TestDisabledServer: its streams end with the answer, everything is refused
// with a reason, and enabled again the same session goes on.
func TestDisabledServer(t *testing.T) {
	server := shared.demoServer(t)
	_, token := shared.addToken(t, server)
	streams := shared.live(t)
	session := streams.listen(t, server, token, 10)
	answer := shared.object(t, "", "server", "disable", server)
	if told := answer["revocation"].(map[string]any); answer["applied"] != true || told["replicas"] != 1.0 || told["replicas_confirmed"] != 1.0 {
		t.Errorf("the answer says %v", answer)
	}
	eventually(t, 2*time.Second, "the streams of the disabled server end", func() bool { open, _ := streams.counts(); return open == 0 })
	shared.refused(t, server, token, 403, -31403)
	shared.object(t, "", "server", "enable", server)
	got := shared.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: rpc("9", "tools/list", ""), header: map[string]string{"Mcp-Session-Id": session}})
	if got.status != 200 {
		t.Errorf("enabled again: status %d, body %s", got.status, got.body)
	}
}

// TestDeletedServer: its credentials end with it, and the answer counts.
func TestDeletedServer(t *testing.T) {
	server := shared.demoServer(t)
	_, first := shared.addToken(t, server)
	_, second := shared.addToken(t, server)
	streams := shared.live(t)
	streams.listen(t, server, first, 10)
	streams.listen(t, server, second, 10)
	answer := shared.object(t, "", "server", "delete", server)["revocation"].(map[string]any)
	if answer["replicas"] != 1.0 || answer["replicas_confirmed"] != 1.0 || answer["streams_ended"] != 20.0 {
		t.Errorf("the answer says %v", answer)
	}
	eventually(t, 2*time.Second, "the streams of the deleted server end", func() bool { open, _ := streams.counts(); return open == 0 })
	for _, token := range []string{first, second} {
		shared.refused(t, server, token, 401, -31401)
	}
}

// TestExpiredTokenEndsItsStreams: a stream lives no longer than its token.
func TestExpiredTokenEndsItsStreams(t *testing.T) {
	server := shared.demoServer(t)
	made := time.Now()
	_, token := shared.addToken(t, server, "--expires", "4s")
	streams := shared.live(t)
	streams.listen(t, server, token, 3)
	if open, _ := streams.counts(); open != 3 {
		t.Fatalf("%d of 3 streams live", open)
	}
	eventually(t, 8*time.Second, "the streams of the expired token end", func() bool { open, _ := streams.counts(); return open == 0 })
	if took := time.Since(made); took < 2500*time.Millisecond || took > 6*time.Second {
		t.Errorf("ended after %v, want about 4 s", took)
	}
	shared.refused(t, server, token, 401, -31401)
}

// TestStreamsOfOneCredentialAreLimited: 256 live, the next is refused in the
// way that suits its method; when one ends there is room again.
func TestStreamsOfOneCredentialAreLimited(t *testing.T) {
	const most = 256
	echo := testfleet.NewEcho(t, testfleet.Config{})
	server := shared.addServer(t, echo.Origin(), "")
	_, token := shared.addToken(t, server)
	_, otherToken := shared.addToken(t, server)
	first, rest := shared.live(t), shared.live(t)
	session := first.session(t, server, token)
	get := call{method: "GET", path: "/servers/" + server + "/mcp", token: token, header: map[string]string{"Mcp-Session-Id": session}}
	first.begin(t, get)
	for range most - 1 {
		rest.begin(t, get)
	}
	if got := shared.do(t, get); got.status != 429 || got.code() != -31429 {
		t.Errorf("stream 257: status %d, body %s", got.status, got.body)
	}
	post := get
	post.method, post.body = "POST", rpc("1", "tools/list", "")
	if got := shared.do(t, post); got.status != 200 || got.code() != -31429 {
		t.Errorf("a call beside 256 streams: status %d, body %s", got.status, got.body)
	}
	others := shared.live(t)
	others.listen(t, server, otherToken, 1)
	first.cancel()
	eventually(t, 2*time.Second, "there is room again", func() bool {
		got := shared.do(t, post)
		return got.status == 200 && got.code() == 0
	})
	if open, _ := rest.counts(); open != most-1 {
		t.Errorf("%d of %d streams live", open, most-1)
	}
}
