//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// user is one token and all that is done with it, on every pair.
type user struct {
	fleet *fleet
	up    *tally
	name  string
	// Of the token.
	server, id, token, session string

	clients []*http.Client // of each pair; HTTP/2, one connection
	older   []*http.Client // of each pair; HTTP/1.1
	ctx     context.Context

	mu      sync.Mutex // guards asked and streams
	asked   []asked
	streams []*stream
	origin  string // of its requests; "": none
}

// asked is what became of one request.
type asked struct {
	began        int64 // its number
	pair         int
	reused       bool // on a connection that was open before
	status, code int  // 0: no answer
}

// stream is one answer that does not end by itself.
type stream struct {
	pair   int
	newest atomic.Int64  // number of the newest event that came
	ended  chan struct{} // closed at its end; what follows is known then
	at     time.Time
	whole  bool // ended as if complete
}

var usersMade atomic.Int64

// addUser makes a token of the server, and a session.
func (f *fleet) addUser(t *testing.T, up *tally, server string) *user {
	t.Helper()
	var made struct{ ID, Token string }
	if status, err := f.api(t, http.MethodPost, "/servers/"+server+"/tokens", map[string]any{}, &made); status != http.StatusCreated {
		t.Fatalf("making a token: status %d, %v", status, err)
	}
	u := &user{fleet: f, up: up, name: fmt.Sprintf("u%d", usersMade.Add(1)), server: server, id: made.ID, token: made.Token}
	var cancel context.CancelFunc
	u.ctx, cancel = context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		for _, s := range u.opened() {
			<-s.ended
		}
	})
	for _, p := range f.pairs {
		u.clients = append(u.clients, &http.Client{Transport: p.transport(t, true)})
		u.older = append(u.older, &http.Client{Transport: p.transport(t, false)})
	}
	u.session = f.session(t, server, u.token)
	return u
}

// api makes one request to control and reads its answer into out.
func (f *fleet) api(t *testing.T, method, path string, in, out any) (status int, err error) {
	t.Helper()
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = strings.NewReader(string(text))
	}
	req, err := http.NewRequest(method, "http://arbiter/api/v1"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := overSocket(filepath.Join(f.dir, "admin.sock")).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode < 300 {
		err = json.Unmarshal(text, out)
	} else if err == nil {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return resp.StatusCode, err
}

// request numbers a request of the user's and makes it. A GET carries its number
// in Last-Event-ID, which the upstream sees too.
func (u *user) request(pair int, method, path, call string) (number int64, req *http.Request) {
	number = u.up.order.Add(1)
	id := fmt.Sprintf("%s.%d", u.name, number)
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(rpc(`"`+id+`"`, call, `{"name":"events"}`))
	}
	req, err := http.NewRequestWithContext(u.ctx, method, u.fleet.pairs[pair].base+"/servers/"+u.server+path, body)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Header.Set("Last-Event-Id", id)
	}
	if path == "/mcp" {
		req.Header.Set("Mcp-Session-Id", u.session)
	}
	if u.origin != "" {
		req.Header.Set("Origin", u.origin)
	}
	return number, req
}

// ask makes one call and notes what came of it.
func (u *user) ask(client *http.Client, pair int, path string) asked {
	call := "tools/list"
	if path == "/mcp" {
		call = "ping" // answered beside any number of streams
	}
	a := asked{pair: pair}
	var req *http.Request
	a.began, req = u.request(pair, http.MethodPost, path, call)
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { a.reused = c.Reused }}
	if resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(u.ctx, trace))); err == nil {
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			a.status, a.code = resp.StatusCode, reply{body: string(body)}.code()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, a)
	return a
}

// open begins one stream and returns when its first event has come.
func (u *user) open(client *http.Client, pair int, method string) error {
	_, req := u.request(pair, method, "/mcp", "tools/call")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s on pair %d: status %d, content type %q instead of a stream: %s", method, pair+1, resp.StatusCode, kind, body)
	}
	s := &stream{pair: pair, ended: make(chan struct{})}
	first := make(chan struct{})
	go s.read(resp.Body, sync.OnceFunc(func() { close(first) }))
	u.mu.Lock()
	u.streams = append(u.streams, s)
	u.mu.Unlock()
	select {
	case <-first:
	case <-s.ended:
	}
	return nil
}

func (s *stream) read(body io.ReadCloser, first func()) {
	defer close(s.ended)
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if number, err := strconv.ParseInt(strings.TrimPrefix(lines.Text(), "id: "), 10, 64); err == nil {
			s.newest.Store(number)
			first()
		}
	}
	s.at, s.whole = time.Now(), lines.Err() == nil
}

// lives reports whether the stream has not ended for its client.
func (s *stream) lives() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// openMany begins n streams, spread over the pairs: GET and POST, most on one
// HTTP/2 connection of each pair, a quarter on HTTP/1.1.
func (u *user) openMany(t *testing.T, n int) {
	t.Helper()
	next, failed := make(chan int), make(chan error, n)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range next {
				pair := i % len(u.clients)
				turn := i / len(u.clients)
				client, method := u.clients[pair], []string{http.MethodGet, http.MethodPost}[turn%2]
				if turn%4 > 2 {
					client = u.older[pair]
				}
				failed <- u.open(client, pair, method)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	for range n {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
}
