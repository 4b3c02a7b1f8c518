//go:build e2e

package e2e

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// The list that upstreams of these tests give, and what of it a token sees that
// may call echo only.
const (
	allTools  = `{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"add","inputSchema":{"type":"object"}}, {"name":"echo","x":1.50},{"name":"delete_all"}],"nextCursor":"n\u0065xt"}}`
	echoTools = `{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo","x":1.50}],"nextCursor":"n\u0065xt"}}`
)

// listUpstream is an MCP server that opens sessions and gives lists in the way
// that its path says.
type listUpstream struct {
	t        testing.TB
	mu       sync.Mutex    // guards the rest
	accepted []string      // Accept-Encoding of what was asked behind the opener
	resumed  []string      // Last-Event-ID of GETs
	held     chan struct{} // the stream of "held" goes on when it is closed
}

func newListUpstream(t *testing.T) (*listUpstream, string) {
	u := &listUpstream{t: t, held: make(chan struct{})}
	return u, testfleet.NewHTTP(t, u, nil)
}

func (u *listUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Method string }
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &in)
	switch {
	case in.Method == "initialize":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "up")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"u","version":"1"}}}`)
		return
	case strings.HasPrefix(in.Method, "notifications/"):
		w.WriteHeader(http.StatusAccepted)
		return
	}
	u.mu.Lock()
	u.accepted = append(u.accepted, r.Header.Get("Accept-Encoding"))
	if r.Method == http.MethodGet {
		u.resumed = append(u.resumed, r.Header.Get("Last-Event-ID"))
	}
	u.mu.Unlock()
	how := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if answer := listAnswers[how]; answer != nil {
		answer(u, w)
		return
	}
	u.t.Errorf("no answer is called %q", how)
}

// listAnswers are the ways to give a list, or to fail at it.
var listAnswers = map[string]func(u *listUpstream, w http.ResponseWriter){
	"json":            saysJSON(allTools),
	"json-bytes":      inBytes("application/json", allTools),
	"json-500":        func(_ *listUpstream, w http.ResponseWriter) { writeAs(w, "application/json", 500, allTools) },
	"json-chunked":    func(_ *listUpstream, w http.ResponseWriter) { flushed(w, "application/json", allTools, "") },
	"duplicate":       saysJSON(strings.Replace(allTools, `"nextCursor"`, `"tools":[],"nextCursor"`, 1)),
	"invalid":         saysJSON(allTools[:len(allTools)-2]),
	"another-case":    saysJSON(strings.Replace(allTools, `"tools"`, `"Tools"`, 1)),
	"trailing":        saysJSON(allTools + allTools),
	"nameless":        saysJSON(`{"jsonrpc":"2.0","id":7,"result":{"tools":[{"title":"echo"},{"Name":"echo"},7]}}`),
	"mebi-4":          saysJSON(listOf(4<<20 - 100)),
	"mebi-5":          saysJSON(listOf(5 << 20)),
	"mebi-5-chunked":  func(_ *listUpstream, w http.ResponseWriter) { flushed(w, "application/json", listOf(5<<20), "") },
	"mebi-5-early":    func(u *listUpstream, w http.ResponseWriter) { early(u, w) },
	"never-whole":     func(_ *listUpstream, w http.ResponseWriter) { flushed(w, "application/json", allTools[:40], "hang") },
	"whole-and-hangs": func(_ *listUpstream, w http.ResponseWriter) { flushed(w, "application/json", allTools, "hang") },
	"gzip":            gzips("application/json", allTools),
	"gzip-sse":        gzips("text/event-stream", "data: "+allTools+"\n\n"),
	"sse":             saysStream("id: 1_2\nevent: message\ndata: " + allTools + "\n\n"),
	"sse-bytes":       inBytes("text/event-stream", ": hi\r\n\r\nid: 1_2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\ndata: "+allTools+"\n\n"),
	"sse-lines":       saysStream("data: " + strings.ReplaceAll(allTools, ", ", ",\ndata: ") + "\n\n"),
	"sse-invalid-late": func(_ *listUpstream, w http.ResponseWriter) {
		flushed(w, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n", "")
		time.Sleep(300 * time.Millisecond) // what was sent has gone on by now
		flushed(w, "text/event-stream", "data: "+allTools[:50]+"\n\n", "")
	},
	"sse-half":    saysStream("data: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\ndata: " + allTools + "\n"),
	"sse-endless": func(_ *listUpstream, w http.ResponseWriter) { endlessEvent(w) },
	"held":        (*listUpstream).heldStream,
}

// listOf is a list of about so many bytes, all but one of its tools hidden.
func listOf(size int) string {
	var out strings.Builder
	out.WriteString(`{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo"}`)
	for i := 0; out.Len() < size-1200; i++ {
		fmt.Fprintf(&out, `,{"name":"t%d","description":%q}`, i, strings.Repeat("d", 1000))
	}
	out.WriteString(`]}}`)
	return out.String()
}

func writeAs(w http.ResponseWriter, media string, status int, body string) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func saysJSON(body string) func(*listUpstream, http.ResponseWriter) {
	return func(_ *listUpstream, w http.ResponseWriter) { writeAs(w, "application/json", 200, body) }
}

func saysStream(body string) func(*listUpstream, http.ResponseWriter) {
	return func(_ *listUpstream, w http.ResponseWriter) { writeAs(w, "text/event-stream", 200, body) }
}

// inBytes sends a body byte by byte, each as a part of its own.
func inBytes(media, body string) func(*listUpstream, http.ResponseWriter) {
	return func(_ *listUpstream, w http.ResponseWriter) {
		w.Header().Set("Content-Type", media)
		for i := range len(body) {
			_, _ = io.WriteString(w, body[i:i+1])
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// flushed says no length; with "hang" it does not end by itself.
func flushed(w http.ResponseWriter, media, body, end string) {
	w.Header().Set("Content-Type", media)
	_, _ = io.WriteString(w, body)
	_ = http.NewResponseController(w).Flush()
	for end == "hang" { // until nobody reads any more
		if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// early says a length of 5 MiB in small parts.
func early(_ *listUpstream, w http.ResponseWriter) {
	body := listOf(5 << 20)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	flushed(w, "application/json", body, "")
}

func gzips(media, body string) func(*listUpstream, http.ResponseWriter) {
	return func(_ *listUpstream, w http.ResponseWriter) {
		w.Header().Set("Content-Type", media)
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = io.WriteString(packed, body)
		_ = packed.Close()
	}
}

func endlessEvent(w http.ResponseWriter) {
	flushed(w, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\ndata: \"", "")
	for line := strings.Repeat("x", 1<<16); ; {
		if _, err := io.WriteString(w, line); err != nil {
			return
		}
	}
}

// heldStream gives one list, then another one when it is told to, and events
// for ever.
func (u *listUpstream) heldStream(w http.ResponseWriter) {
	flushed(w, "text/event-stream", "id: 1\ndata: "+allTools+"\n\n", "")
	<-u.held
	for i := 2; ; i++ {
		_, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i, allTools)
		if err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
