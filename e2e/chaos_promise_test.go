//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// promises is what control has answered, and the upstream that sees whether it
// holds: nothing that begins after the answer comes through the gateway.
type promises struct {
	origin string
	began  time.Time
	every  time.Duration // between two events of a stream
	done   chan struct{} // streams end when it is closed

	mu      sync.Mutex          // guards the rest
	kept    map[string][]window // by token's or server's id
	frozen  map[string][]window // when a pair's Envoy was stopped
	broken  []string
	arrived int // requests that upstream has seen
	events  int // events that clients have seen
}

// window is a time in which nothing may be accepted. It ends when the answer is
// taken back, just before that is asked for; until 0: never.
type window struct{ from, until time.Duration }

// newPromises serves until the test ends.
func newPromises(t *testing.T, every time.Duration) *promises {
	t.Helper()
	p := &promises{began: time.Now(), every: every, done: make(chan struct{}), kept: map[string][]window{}, frozen: map[string][]window{}}
	p.origin = testfleet.NewHTTP(t, p, nil)
	t.Cleanup(func() { close(p.done) })
	return p
}

// now is the time on the one clock that everything here is judged by.
func (p *promises) now() time.Duration { return time.Since(p.began) }

// ended notes that control has answered: this key is ended.
func (p *promises) ended(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[key] = append(p.kept[key], window{from: p.now()})
}

// revived is called before control is asked to take that back.
func (p *promises) revived(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.kept[key]; len(all) > 0 && all[len(all)-1].until == 0 {
		all[len(all)-1].until = p.now()
	}
}

// thawed notes that a pair's Envoy was stopped from a moment until now. What an
// upstream has sent to it meanwhile is in its buffers. Nobody can take it back:
// Envoy may pass it on when it wakes up, before it reads that the stream has
// been cut.
func (p *promises) thawed(pair string, from time.Duration) {
	const wakes = 250 * time.Millisecond
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen[pair] = append(p.frozen[pair], window{from, p.now() + wakes})
}

// inFrozen reports whether an event was made while its pair's Envoy was stopped.
func (p *promises) inFrozen(m mark) bool {
	return slices.ContainsFunc(p.frozen[m.pair], func(w window) bool { return m.began >= w.from && m.began < w.until })
}

// mark is what a request says to upstream, and what stands in an event: whose it
// is, over which pair, and when it began.
type mark struct {
	server, token, pair string
	began               time.Duration
}

const markHeader = "X-Mark"

// What comes through.
const (
	request = "a request"
	event   = "an event"
)

func (m mark) String() string {
	return fmt.Sprintf("%s %s %s %d", m.server, m.token, m.pair, m.began)
}

func markOf(text string) (m mark, ok bool) {
	parts := strings.Fields(text)
	if len(parts) != 4 {
		return m, false
	}
	began, err := strconv.ParseInt(parts[3], 10, 64)
	return mark{parts[0], parts[1], parts[2], time.Duration(began)}, err == nil
}

// judge takes note of something that came through at now.
func (p *promises) judge(what string, m mark, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range []string{m.token, m.server} {
		for _, w := range p.kept[key] {
			if m.began > w.from && (w.until == 0 || now < w.until) && !(what == event && p.inFrozen(m)) {
				p.broken = append(p.broken, fmt.Sprintf("%s on pair %s began at %v and came through at %v; %s was answered as ended at %v",
					what, m.pair, m.began, now, key, w.from))
			}
		}
	}
}

// ServeHTTP is the upstream: an MCP server whose every call and every GET is a
// stream that does not end by itself, and JSON-RPC that answers at once.
func (p *promises) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := p.now()
	m, marked := markOf(r.Header.Get(markHeader))
	if !marked {
		http.Error(w, "no mark", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.arrived++
	p.mu.Unlock()
	p.judge(request, m, now)
	var in struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &in)
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet || in.Method == "tools/call" && strings.HasSuffix(r.URL.Path, "/mcp"):
		p.stream(w, r, m)
	case in.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		if in.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", "upstream")
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`, in.ID)
	}
}

// stream sends numbered events, each with the moment in which it was made.
func (p *promises) stream(w http.ResponseWriter, r *http.Request, m mark) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for n := 1; ; n++ {
		m.began = p.now()
		if _, err := fmt.Fprintf(w, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"%v\"}}\n\n", n, m); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-p.done:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// event reads one line of a stream on the client's side; lines that are no data
// of an event say nothing.
func (p *promises) event(line string) {
	now := p.now()
	_, data, found := strings.Cut(line, `"data":"`)
	if m, ok := markOf(strings.TrimSuffix(data, `"}}`)); found && ok {
		p.judge(event, m, now)
		p.mu.Lock()
		p.events++
		p.mu.Unlock()
	}
}

// check fails for each promise that was broken since it was last called.
func (p *promises) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, broken := range p.broken {
		if i == 10 {
			t.Errorf("and %d more", len(p.broken)-10)
			break
		}
		t.Error(broken)
	}
	p.broken = nil
}
