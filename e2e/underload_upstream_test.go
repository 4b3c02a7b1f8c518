//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tally is an upstream that numbers what it says. Its events, the requests of
// users and the answers of control take their numbers from one counter, so that
// of any two it is known which was first.
type tally struct {
	order atomic.Int64
	url   string

	mu     sync.Mutex       // guards newest and now
	newest map[string]int64 // user -> the highest number of a request that came here
	now    chan struct{}    // closed and replaced: every stream says something at once
}

// eventEvery is the pause between two events of one stream.
const eventEvery = 200 * time.Millisecond

func newTally(t *testing.T) *tally {
	t.Helper()
	up := &tally{newest: map[string]int64{}, now: make(chan struct{})}
	server := httptest.NewServer(up)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	up.url = server.URL
	return up
}

// ServeHTTP answers like a small MCP server: GET and tools/call with a stream
// that does not end by itself.
func (up *tally) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
	}
	up.came(strings.Trim(string(m.ID), `"`), r.Header.Get("Last-Event-Id"))
	switch {
	case r.Method == http.MethodGet, m.Method == "tools/call":
		up.stream(w, r)
		return
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	result := "{}"
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "of-the-upstream")
		result = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"tally","version":"1"}}`
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// came notes "user.number", which stands in one of two places.
func (up *tally) came(ids ...string) {
	for _, id := range ids {
		user, text, _ := strings.Cut(id, ".")
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			up.mu.Lock()
			up.newest[user] = max(up.newest[user], number)
			up.mu.Unlock()
		}
	}
}

func (up *tally) newestOf(user string) int64 {
	up.mu.Lock()
	defer up.mu.Unlock()
	return up.newest[user]
}

// mark takes a number for something that has just happened, and has every
// stream say something at once: one that still lives shows it.
func (up *tally) mark() int64 {
	number := up.order.Add(1)
	up.mu.Lock()
	defer up.mu.Unlock()
	close(up.now)
	up.now = make(chan struct{})
	return number
}

func (up *tally) marked() <-chan struct{} {
	up.mu.Lock()
	defer up.mu.Unlock()
	return up.now
}

func (up *tally) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(eventEvery)
	defer ticker.Stop()
	for {
		marked := up.marked()
		if _, err := fmt.Fprintf(w, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n", up.order.Add(1)); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-ticker.C:
		case <-marked:
		case <-r.Context().Done():
			return
		}
	}
}
