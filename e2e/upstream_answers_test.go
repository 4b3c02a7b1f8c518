//go:build e2e

package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// oneSecond is the call limit of servers whose upstream keeps its callers
// waiting.
const oneSecond = "--call-limit=1s"

// callsEcho asks for what is passed on as it comes; lists are filtered.
var callsEcho = rpc("7", "tools/call", `{"name":"echo"}`)

// answerCase is one way to answer a request, and what the caller sees of it.
type answerCase struct {
	behaviour string
	status    int
	code      int    // of the JSON-RPC error; 0: none
	body      string // some of the body
	broken    bool   // the body never ends well
	after     time.Duration
}

// replaced are the answers that look the same on both paths: 502, or the
// upstream's own error status with another body.
var replaced = []answerCase{
	{behaviour: "401", status: 502, code: -31502},
	{behaviour: "407", status: 502, code: -31502},
	{behaviour: "301", status: 502, code: -31502},
	{behaviour: "302", status: 502, code: -31502},
	{behaviour: "307", status: 502, code: -31502},
	{behaviour: "204", status: 502, code: -31502},
	{behaviour: "html-200", status: 502, code: -31502},
	{behaviour: "html-500", status: 500, code: -31502},
	{behaviour: "empty-200", status: 502, code: -31502},
	{behaviour: "huge-header", status: 502, code: -31502},
	{behaviour: "garbage", status: 502, code: -31502},
	{behaviour: "close", status: 502, code: -31502},
	{behaviour: "close-in-headers", status: 502, code: -31502},
	{behaviour: "two-lengths", status: 502, code: -31502},
	{behaviour: "length-and-chunks", status: 502, code: -31502},
	{behaviour: "switching-protocols", status: 502, code: -31502},
	{behaviour: "hang", status: 504, code: -31504, after: time.Second},
}

// passed are the answers that go on to the caller on both paths, cleaned.
var passed = []answerCase{
	{behaviour: "json-500", status: 500, body: "stack trace"},
	{behaviour: "cookie", status: 200, body: `"result":{}`},
	{behaviour: "headers", status: 200, body: `"result":{}`},
	{behaviour: "http-1.0", status: 200, body: `"result":{}`},
	{behaviour: "informational", status: 200, body: `"result":{}`},
	{behaviour: "trailers", status: 200, body: `"result":{}`},
	{behaviour: "gzip", status: 200},
	{behaviour: "length-too-small", status: 200, body: "{}"},
	{behaviour: "answer-of-another-id", status: 200, body: `"id":"another"`},
	{behaviour: "session-everywhere", status: 200, body: `"result":{}`},
	{behaviour: "close-in-body", status: 200, broken: true},
	{behaviour: "close-in-chunk", status: 200, broken: true},
}

// TestHostileAnswersOnRPC: no answer of an upstream makes the caller see
// anything but JSON, an error of ours, or a broken body.
func TestHostileAnswersOnRPC(t *testing.T) {
	only := []answerCase{
		{behaviour: "sse", status: 502, code: -31502},
		{behaviour: "sse-half", status: 502, code: -31502},
		{behaviour: "sse-nonsense", status: 502, code: -31502},
		{behaviour: "opener-sse", status: 502, code: -31502},
		{behaviour: "dribble", status: 200, body: `"result":{}`},
		{behaviour: "hang-after-headers", status: 200, broken: true, after: time.Second},
		{behaviour: "endless-json", status: 200, broken: true, after: time.Second},
		{behaviour: "endless-202", status: 502, code: -31502},
	}
	t.Run("each", func(t *testing.T) {
		for _, test := range append(append(only, replaced...), passed...) {
			t.Run(test.behaviour, func(t *testing.T) {
				t.Parallel()
				hostile := testfleet.NewHostile(t, testfleet.Config{}) // of its own: it closes connections
				limit := oneSecond
				if test.behaviour == "dribble" {
					limit = "--call-limit=20s"
				}
				server := shared.addServer(t, "", hostile.URL(t, test.behaviour), limit)
				_, token := shared.addToken(t, server)
				for _, http2 := range []bool{false, true} {
					test.check(t, call{path: "/servers/" + server + "/rpc", token: token, body: callsEcho, http2: http2})
				}
			})
		}
	})
}

// TestHostileAnswersInSession is the same within a session on /mcp.
func TestHostileAnswersInSession(t *testing.T) {
	only := []answerCase{
		{behaviour: "sse-cut", status: 200, body: "event 3", broken: true},
		{behaviour: "dribble", status: 200, body: `"result":{}`},
	}
	t.Run("each", func(t *testing.T) {
		for _, test := range append(append(only, replaced...), passed...) {
			t.Run(test.behaviour, func(t *testing.T) {
				t.Parallel()
				hostile := testfleet.NewHostile(t, testfleet.Config{})
				server := shared.addServer(t, hostile.AfterOpening(t, test.behaviour), "", oneSecond)
				_, token := shared.addToken(t, server)
				header := map[string]string{"Mcp-Session-Id": shared.session(t, server, token)}
				for _, http2 := range []bool{false, true} {
					test.check(t, call{path: "/servers/" + server + "/mcp", token: token, header: header, body: callsEcho, http2: http2})
				}
			})
		}
	})
}

// TestHostileAnswersToLists: what may not pass is replaced before it is read.
func TestHostileAnswersToLists(t *testing.T) {
	t.Run("each", func(t *testing.T) {
		for _, test := range replaced {
			t.Run(test.behaviour, func(t *testing.T) {
				t.Parallel()
				hostile := testfleet.NewHostile(t, testfleet.Config{})
				server := shared.addServer(t, "", hostile.URL(t, test.behaviour), oneSecond)
				_, token := shared.addToken(t, server)
				test.check(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("7", "tools/list", "")})
			})
		}
	})
}

func (test answerCase) check(t *testing.T, c call) {
	t.Helper()
	began := time.Now()
	got, err := shared.try(t, c)
	if err != nil && got.status == 0 {
		t.Fatalf("no answer at all: %v", err)
	}
	if (err != nil) != test.broken {
		t.Errorf("reading the body: %v, broken wanted: %v", err, test.broken)
	}
	if got.status != test.status || got.code() != test.code || !strings.Contains(got.body, test.body) {
		t.Errorf("http2 %v: status %d, code %d, body %q; want %d, %d, %q", c.http2, got.status, got.code(), got.body, test.status, test.code, test.body)
	}
	if took := time.Since(began); took < test.after-50*time.Millisecond || took > test.after+8*time.Second {
		t.Errorf("took %v, want about %v", took, test.after)
	}
	if test.code != 0 {
		checkOurError(t, got, "7")
	}
	checkClean(t, got)
}

// checkOurError holds what contract section 4 says of an error of ours: JSON,
// the id echoed, and the request id of the header in its data.
func checkOurError(t *testing.T, got reply, id string) {
	t.Helper()
	if kind := got.header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("content type %q", kind)
	}
	if !strings.Contains(got.body, `"id":`+id+`,`) {
		t.Errorf("the id %s is not echoed: %s", id, got.body)
	}
	if strings.Contains(got.body, "evil") {
		t.Errorf("the upstream's words: %s", got.body)
	}
	said := got.header.Get("Arbiter-Request-Id")
	if !strings.Contains(got.body, `"request_id":"`+said+`"`) {
		t.Errorf("the header says request %q, the body %s", said, got.body)
	}
}

// checkClean refuses every header that an upstream could speak in the
// gateway's name with, and wants our own ones exactly once.
func checkClean(t *testing.T, got reply) {
	t.Helper()
	for name, values := range got.header {
		lower := strings.ToLower(name)
		for _, prefix := range []string{"proxy-", "access-control-", "x-arbiter-", "x-envoy-", "x-smuggled"} {
			if strings.HasPrefix(lower, prefix) {
				t.Errorf("%s: %q has come through", name, values)
			}
		}
		if strings.HasPrefix(lower, "arbiter-") && lower != "arbiter-request-id" && lower != "arbiter-decision" {
			t.Errorf("%s: %q has come through", name, values)
		}
	}
	for _, name := range []string{
		"Www-Authenticate", "Set-Cookie", "Location", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Refresh", "Mcp-Session-Id",
	} {
		if values := got.header.Values(name); len(values) > 0 {
			t.Errorf("%s: %q has come through", name, values)
		}
	}
	once := map[string]func(string) bool{
		"Arbiter-Request-Id":     func(v string) bool { return len(v) == 36 },
		"X-Content-Type-Options": func(v string) bool { return v == "nosniff" },
		"Server":                 func(v string) bool { return v == "arbiter" },
	}
	for name, right := range once {
		if values := got.header.Values(name); len(values) != 1 || !right(values[0]) {
			t.Errorf("%s: %q, want it once and ours", name, values)
		}
	}
}

// TestHostileStreamInSession passes a stream, cleaned, while it lives.
func TestHostileStreamInSession(t *testing.T) {
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	server := shared.addServer(t, hostile.AfterOpening(t, "sse"), "", oneSecond)
	_, token := shared.addToken(t, server)
	header := map[string]string{"Mcp-Session-Id": shared.session(t, server, token)}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := shared.open(t, ctx, call{path: "/servers/" + server + "/mcp", token: token, header: header, body: callsEcho})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	checkClean(t, reply{resp.StatusCode, resp.Header, ""})
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		t.Errorf("status %d, content type %q", resp.StatusCode, kind)
	}
	began, buf := time.Now(), make([]byte, 1024)
	for time.Since(began) < 1500*time.Millisecond { // beyond the call limit, which ends with the headers
		if _, err := resp.Body.Read(buf); err != nil {
			t.Fatalf("the stream ended after %v: %v", time.Since(began), err)
		}
	}
}

// TestEndless202IsLimited: a 202 passes without a look, so it lasts no longer
// than the call limit, in a session too.
func TestEndless202IsLimited(t *testing.T) {
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	server := shared.addServer(t, hostile.AfterOpening(t, "endless-202"), "", oneSecond)
	_, token := shared.addToken(t, server)
	header := map[string]string{"Mcp-Session-Id": shared.session(t, server, token)}
	for _, test := range []struct{ name, body string }{
		{"notification", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
		{"response", `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"request", callsEcho},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			resp, err := shared.open(t, ctx, call{path: "/servers/" + server + "/mcp", token: token, header: header, body: test.body})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			if ctx.Err() != nil {
				t.Errorf("status %d, and its body went on for 5 s with a call limit of 1 s", resp.StatusCode)
			}
		})
	}
}

// TestContentTypeOfTwoMeanings: a second media type behind a comma is what a
// browser would believe, so such an answer is no JSON.
func TestContentTypeOfTwoMeanings(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines []string
	}{
		{"behind a parameter", []string{"application/json; a=b, text/html"}},
		{"two lines", []string{"application/json; a=b", "text/html"}},
		{"html first", []string{"text/html", "application/json"}},
		{"stream and html", []string{"text/event-stream; a=b, text/html"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			origin := testfleet.NewHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = test.lines
				_, _ = io.WriteString(w, `<script>"evil"</script>`)
			}), nil)
			server := shared.addServer(t, "", origin)
			_, token := shared.addToken(t, server)
			got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: callsEcho})
			if got.status != 502 || got.code() != -31502 {
				t.Errorf("status %d, type %q, body %s", got.status, got.header.Values("Content-Type"), got.body)
			}
			checkClean(t, got)
		})
	}
}
