//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tenants make servers and tokens, use them everywhere, and take them away.
type tenants struct {
	*promises
	fleet *fleet
	doors []*door

	made, deletes, disables, servers, errors atomic.Int64 // what control answered
	missing                                  atomic.Int64 // answers after somebody's lease
	allowed, refused, faults, cut            atomic.Int64 // what clients got
}

// door is one pair as clients reach it.
type door struct {
	name, base          string
	kept, fresh, shared *http.Client // connections kept alive; one each; HTTP/2
}

func newTenants(t *testing.T, f *fleet, p *promises) *tenants {
	n := &tenants{promises: p, fleet: f}
	for i, p := range f.pairs {
		kept, fresh := p.transport(t, false), p.transport(t, false)
		kept.MaxIdleConnsPerHost, fresh.DisableKeepAlives = 32, true
		n.doors = append(n.doors, &door{
			name: fmt.Sprint(i + 1), base: p.base,
			kept:   &http.Client{Transport: kept, Timeout: 3 * time.Second},
			fresh:  &http.Client{Transport: fresh, Timeout: 3 * time.Second},
			shared: &http.Client{Transport: p.transport(t, true)},
		})
	}
	return n
}

// visit is a token as it is used over one pair.
type visit struct {
	*door
	mark  mark
	value string
}

// live is one tenant's life: a server, and one token after the other.
func (n *tenants) live(ctx context.Context, random *rand.Rand) {
	var after sync.WaitGroup // uses of what has ended go on for a while
	defer after.Wait()
	for ctx.Err() == nil {
		server, ok := n.server(ctx)
		for ok && ctx.Err() == nil {
			status, made, err := n.fleet.ask("POST", "/servers/"+server+"/tokens", `{"name":"one"}`)
			if err != nil || status != 201 {
				n.errors.Add(1)
				ok = status != 404 // a delete that was not answered did its work
				rest(ctx, 100*time.Millisecond)
				continue
			}
			n.made.Add(1)
			id, value := made["id"].(string), made["token"].(string)
			using, stop := context.WithCancel(ctx)
			after.Go(func() { n.use(using, server, id, value) })
			rest(ctx, time.Duration(200+random.IntN(1500))*time.Millisecond)
			linger := time.Duration(500+random.IntN(6500)) * time.Millisecond
			if way := random.IntN(10); way < 2 {
				ok = n.endServer(ctx, random, server)
				after.Go(func() { lingers(ctx, linger, stop) })
			} else {
				after.Go(func() {
					n.endToken(server, id)
					lingers(ctx, linger, stop)
				})
			}
		}
	}
}

// server makes one that works.
func (n *tenants) server(ctx context.Context) (id string, ok bool) {
	body := fmt.Sprintf(`{"name":"chaos-%d","mcp":"%s/mcp","rpc":"%s/rpc"}`, time.Now().UnixNano(), n.origin, n.origin)
	status, made, err := n.fleet.ask("POST", "/servers", body)
	if err != nil || status != 201 {
		n.errors.Add(1)
		rest(ctx, 100*time.Millisecond)
		return "", false
	}
	return made["id"].(string), true
}

func lingers(ctx context.Context, d time.Duration, stop func()) {
	rest(ctx, d)
	stop()
}

// endServer takes a server away, for good or for a while; false: it is gone.
func (n *tenants) endServer(ctx context.Context, random *rand.Rand, server string) (lives bool) {
	if random.IntN(3) == 0 {
		if n.answered("DELETE", "/servers/"+server) {
			n.ended(server)
			n.servers.Add(1)
		}
		return false
	}
	if n.answered("POST", "/servers/"+server+"/disable") {
		n.ended(server)
		n.disables.Add(1)
	}
	rest(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
	n.revived(server)
	return n.answered("POST", "/servers/"+server+"/enable")
}

func (n *tenants) endToken(server, token string) {
	if n.answered("DELETE", "/servers/"+server+"/tokens/"+token) {
		n.ended(token)
		n.deletes.Add(1)
	}
}

func (n *tenants) answered(method, path string) bool {
	status, body, err := n.fleet.ask(method, path, "")
	if err != nil || status != 200 {
		n.errors.Add(1)
		return false
	}
	told, _ := body["revocation"].(map[string]any)
	if missing, _ := told["missing"].([]any); len(missing) > 0 {
		n.missing.Add(1)
	}
	return true
}

// use calls and listens on every pair until ctx ends.
func (n *tenants) use(ctx context.Context, server, token, value string) {
	var using sync.WaitGroup
	defer using.Wait()
	for _, d := range n.doors {
		v := visit{d, mark{server: server, token: token, pair: d.name}, value}
		using.Go(func() { n.call(ctx, v) })
		using.Go(func() { n.listen(ctx, v) })
	}
}

// call asks on /rpc again and again, every fourth time on a new connection.
func (n *tenants) call(ctx context.Context, v visit) {
	for i := 0; ctx.Err() == nil; i++ {
		client := v.kept
		if i%4 == 3 {
			client = v.fresh
		}
		resp, err := n.send(ctx, client, v, pingCall)
		switch {
		case err != nil:
			n.faults.Add(1)
		case resp.StatusCode == 200:
			n.allowed.Add(1)
		default:
			n.refused.Add(1)
		}
		finish(resp)
		rest(ctx, 150*time.Millisecond)
	}
}

// pingCall is a call on /rpc; its path is the transport.
var pingCall = call{method: "POST", path: "rpc", body: rpc("1", "ping", "")}

func finish(resp *http.Response) {
	if resp != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// listen opens a session and a stream in it, again when it ends.
func (n *tenants) listen(ctx context.Context, v visit) {
	for i := 0; ctx.Err() == nil; i++ {
		if session := n.session(ctx, v); session != "" {
			c := listenCall(session)
			if i%2 == 1 {
				c.method, c.body = "POST", rpc("2", "tools/call", `{"name":"x"}`)
			}
			n.follow(ctx, v, c)
		}
		rest(ctx, 60*time.Millisecond)
	}
}

func listenCall(session string) call {
	return call{method: "GET", path: "mcp", header: map[string]string{"Mcp-Session-Id": session}}
}

// session opens one; "": it was refused.
func (n *tenants) session(ctx context.Context, v visit) string {
	resp, err := n.send(ctx, v.kept, v, call{method: "POST", path: "mcp", body: initialize})
	defer finish(resp)
	if err != nil || resp.StatusCode != 200 {
		return ""
	}
	return resp.Header.Get("Mcp-Session-Id")
}

// follow reads one stream to its end.
func (n *tenants) follow(ctx context.Context, v visit, c call) {
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	impatient := time.AfterFunc(3*time.Second, cancel)
	resp, err := n.send(opening, v.shared, v, c)
	impatient.Stop()
	if err != nil {
		return
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		n.event(lines.Text())
	}
	if ctx.Err() == nil && resp.StatusCode == 200 {
		n.cut.Add(1)
	}
}

// send marks a request and sends it.
func (n *tenants) send(ctx context.Context, client *http.Client, v visit, c call) (*http.Response, error) {
	var in io.Reader
	if c.body != "" {
		in = strings.NewReader(c.body)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, v.base+"/servers/"+v.mark.server+"/"+c.path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+v.value)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	v.mark.began = n.now()
	req.Header.Set(markHeader, v.mark.String())
	return client.Do(req)
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
