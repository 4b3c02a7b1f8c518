//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

const openerMost = 256 << 10 // bytes of an answer to initialize that is read

// TestHostileOpeners: a session comes only from a whole answer with a result,
// and only ours.
func TestHostileOpeners(t *testing.T) {
	tests := []struct {
		behaviour string
		status    int
		code      int
		session   bool
		longest   int // bytes of our id; 0: not looked at
		after     time.Duration
	}{
		{behaviour: "session-everywhere", status: 200, session: true, longest: 512},
		{behaviour: "session-256", status: 200, session: true, longest: 512},
		{behaviour: "session-1024", status: 200, session: true},
		{behaviour: "session-none", status: 200, session: true, longest: 512},
		{behaviour: "opener-sse", status: 200, session: true},
		{behaviour: "opener-sse-error", status: 200, session: true}, // sealed at its headers
		{behaviour: "headers", status: 200, session: true},
		{behaviour: "opener-error", status: 200, code: -32603},
		{behaviour: "json-500", status: 500},
		{behaviour: "session-1025", status: 502, code: -31502},
		{behaviour: "session-2048", status: 502, code: -31502},
		{behaviour: "session-control", status: 502, code: -31502},
		{behaviour: "session-latin-1", status: 502, code: -31502},
		{behaviour: "session-space", status: 502, code: -31502},
		{behaviour: "session-tab", status: 502, code: -31502},
		{behaviour: "session-twice", status: 502, code: -31502},
		{behaviour: "opener-big", status: 502, code: -31502},
		{behaviour: "opener-cut", status: 502, code: -31502},
		{behaviour: "opener-202", status: 502, code: -31502},
		{behaviour: "gzip", status: 502, code: -31502},
		{behaviour: "empty-json", status: 502, code: -31502},
		{behaviour: "html-200", status: 502, code: -31502},
		{behaviour: "401", status: 502, code: -31502},
		{behaviour: "opener-dribble", status: 504, code: -31504, after: time.Second},
		{behaviour: "hang", status: 504, code: -31504, after: time.Second},
	}
	t.Run("each", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test.behaviour, func(t *testing.T) {
				t.Parallel()
				hostile := testfleet.NewHostile(t, testfleet.Config{})
				server := shared.addServer(t, hostile.URL(t, test.behaviour), "", oneSecond)
				_, token := shared.addToken(t, server)
				for _, http2 := range []bool{false, true} {
					began := time.Now()
					got := shared.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: initialize, http2: http2})
					if got.status != test.status || got.code() != test.code {
						t.Errorf("http2 %v: status %d, code %d, body %s", http2, got.status, got.code(), got.body)
					}
					if took := time.Since(began); took < test.after-50*time.Millisecond || took > test.after+8*time.Second {
						t.Errorf("took %v, want about %v", took, test.after)
					}
					checkSessionID(t, got.header.Values("Mcp-Session-Id"), test.session, test.longest)
					got.header.Del("Mcp-Session-Id")
					checkClean(t, got)
				}
			})
		}
	})
}

func checkSessionID(t *testing.T, ids []string, want bool, longest int) {
	t.Helper()
	if !want {
		if len(ids) > 0 {
			t.Errorf("a session id without a session: %q", ids)
		}
		return
	}
	if len(ids) != 1 {
		t.Fatalf("%d session ids: %q", len(ids), ids)
	}
	if strings.Contains(ids[0], "upstream") || strings.Contains(ids[0], "sss") {
		t.Errorf("the upstream's own id: %q", ids[0])
	}
	if longest > 0 && len(ids[0]) > longest {
		t.Errorf("an id of %d bytes, want at most %d", len(ids[0]), longest)
	}
	if strings.ContainsFunc(ids[0], func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		t.Errorf("not visible ASCII: %q", ids[0])
	}
}

// recorded is an upstream that answers as told and keeps what it saw.
type recorded struct {
	origin string
	seen   chan *http.Request
}

func record(t *testing.T, answer func(w http.ResponseWriter, body string)) recorded {
	t.Helper()
	r := recorded{seen: make(chan *http.Request, 64)}
	r.origin = testfleet.NewHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.seen <- req.Clone(context.Background())
		answer(w, string(body))
	}), nil)
	return r
}

// openerOf answers initialize with a result that is size bytes long.
func openerOf(size int) string {
	const form = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"},"instructions":%q}}`
	return fmt.Sprintf(form, strings.Repeat("p", size-len(form)+len(`%q`)-len(`""`)))
}

// TestOpenerUpToItsLimit: 256 KiB are read whole and arrive byte for byte.
func TestOpenerUpToItsLimit(t *testing.T) {
	for _, test := range []struct {
		name   string
		size   int
		status int
	}{
		{"small", 300, 200},
		{"of a buffer", 64 << 10, 200},
		{"just within", openerMost, 200},
		{"one byte over", openerMost + 1, 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := openerOf(test.size)
			if len(body) != test.size {
				t.Fatalf("%d bytes instead of %d", len(body), test.size)
			}
			up := record(t, func(w http.ResponseWriter, _ string) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			})
			server := shared.addServer(t, up.origin, "")
			_, token := shared.addToken(t, server)
			for _, http2 := range []bool{false, true} {
				got := shared.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: initialize, http2: http2})
				if got.status != test.status || (got.header.Get("Mcp-Session-Id") != "") != (test.status == 200) {
					t.Errorf("http2 %v: status %d, session %q, %d bytes", http2, got.status, got.header.Get("Mcp-Session-Id"), len(got.body))
				}
				if test.status == 200 && got.body != body {
					t.Errorf("http2 %v: %d bytes came of %d, or others", http2, len(got.body), len(body))
				}
			}
		})
	}
}

// TestUpstreamWithoutSessions: the caller gets a session all the same, the
// upstream never hears of one, and there is nothing to end.
func TestUpstreamWithoutSessions(t *testing.T) {
	up := record(t, func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(body, `"initialize"`) {
			_, _ = io.WriteString(w, openerOf(300))
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{}}`)
	})
	server := shared.addServer(t, up.origin, "")
	_, token := shared.addToken(t, server)
	path := "/servers/" + server + "/mcp"
	header := map[string]string{"Mcp-Session-Id": shared.session(t, server, token), "Last-Event-ID": "5"}
	if got := shared.do(t, call{path: path, token: token, header: header, body: rpc("7", "tools/list", "")}); got.status != 200 {
		t.Errorf("status %d, body %s", got.status, got.body)
	}
	if got := shared.do(t, call{method: "DELETE", path: path, token: token, header: header}); got.status != 405 || got.header.Get("Allow") != "POST, GET" {
		t.Errorf("DELETE: status %d, allow %q", got.status, got.header.Get("Allow"))
	}
	if len(up.seen) != 3 {
		t.Errorf("the upstream got %d requests, want 3", len(up.seen))
	}
	for range len(up.seen) {
		req := <-up.seen
		if ids := append(req.Header.Values("Mcp-Session-Id"), req.Header.Values("Last-Event-ID")...); len(ids) > 0 {
			t.Errorf("the upstream saw %q", ids)
		}
	}
}

// TestFailedOpenerKeepsTheUpstreamsID: the id of an upstream stands on no
// answer, not on an error to initialize either.
func TestFailedOpenerKeepsTheUpstreamsID(t *testing.T) {
	up := record(t, func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "upstream-session")
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`)
	})
	server := shared.addServer(t, up.origin, "")
	_, token := shared.addToken(t, server)
	got := shared.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: initialize})
	if got.status != 400 || got.code() != -32602 {
		t.Errorf("status %d, body %s", got.status, got.body)
	}
	checkClean(t, got) // without a session id
}

// TestErrorsEchoAnyID: whatever an id may be, it comes back as it was.
func TestErrorsEchoAnyID(t *testing.T) {
	server := shared.addServer(t, "", "http://"+closedPort(t))
	_, token := shared.addToken(t, server)
	for _, id := range []string{`0`, `-9007199254740991`, `1.50e2`, `""`, `"a\"b\\%REQ(authorization)% %STREAM_ID%"`, `"\u0000é漢"`, `"` + strings.Repeat("i", 1000) + `"`} {
		t.Run(id[:min(len(id), 12)], func(t *testing.T) {
			got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc(id, "ping", "")})
			if got.status != 502 || !strings.HasPrefix(got.body, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-31502,`) {
				t.Errorf("status %d, body %s", got.status, got.body)
			}
			got.message(t) // is JSON
		})
	}
}

// TestRevokedWhileTheUpstreamThinks: a stream whose token ends between Check
// and the upstream's first byte does not begin, and the caller is told why.
func TestRevokedWhileTheUpstreamThinks(t *testing.T) {
	think := make(chan struct{})
	up := record(t, func(w http.ResponseWriter, body string) {
		if strings.Contains(body, `"initialize"`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, openerOf(300))
			return
		}
		<-think
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
	})
	server := shared.addServer(t, up.origin, "")
	id, token := shared.addToken(t, server)
	header := map[string]string{"Mcp-Session-Id": shared.session2(t, server, token)}
	<-up.seen // initialize
	answer := make(chan reply, 1)
	go func() {
		got, _ := shared.try(t, call{path: "/servers/" + server + "/mcp", token: token, header: header, body: rpc("7", "tools/list", "")})
		answer <- got
	}()
	<-up.seen
	shared.object(t, "", "token", "delete", server, id)
	close(think)
	got := <-answer
	if got.status != 401 || got.code() != -31401 || bytes.Contains([]byte(got.body), []byte("data: ")) {
		t.Errorf("status %d, body %s", got.status, got.body)
	}
	if challenges := got.header.Values("Www-Authenticate"); len(challenges) != 1 || !strings.Contains(challenges[0], `error="invalid_token"`) {
		t.Errorf("challenge %q", challenges)
	}
}
