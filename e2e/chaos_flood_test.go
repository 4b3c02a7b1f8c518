//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// spread runs do for 0 to n-1 by so many workers, and fails for each error.
func spread(t *testing.T, workers, n int, do func(i int) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error {
			if err := do(i); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// flooded is two pairs with many tokens.
type flooded struct {
	*fleet
	server      string
	ids, values []string
	clients     []*http.Client // per pair
}

// ping asks on one pair over a connection that is kept alive.
func (f *flooded) ping(pair int, token string) (status int, err error) {
	req, err := http.NewRequest("POST", f.pairs[pair].base+"/servers/"+f.server+"/rpc", strings.NewReader(rpc("1", "ping", "")))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.clients[pair].Do(req)
	if err != nil {
		return 0, err
	}
	finish(resp)
	return resp.StatusCode, nil
}

// TestFaultFloodOfDeletes: 2,000 tokens that both pairs know, deleted by sixteen at
// once. Each delete is answered with both confirmations, and when it is answered
// both pairs refuse the token.
func TestFaultFloodOfDeletes(t *testing.T) {
	const tokens, workers = 2000, 16
	f := &flooded{fleet: startFleet(t, 2, "ARBITER_LEASE=5s")}
	echo := testfleet.NewEcho(t, testfleet.Config{})
	f.server = f.addServer(t, echo.Origin(), echo.Origin())
	for _, p := range f.pairs {
		transport := p.transport(t, false)
		transport.MaxIdleConnsPerHost = workers
		f.clients = append(f.clients, &http.Client{Transport: transport, Timeout: time.Minute})
	}
	f.ids, f.values = make([]string, tokens), make([]string, tokens)
	spread(t, workers, tokens, func(i int) error {
		status, made, err := f.ask("POST", "/servers/"+f.server+"/tokens", `{"name":"one of many"}`)
		if err != nil || status != 201 {
			return fmt.Errorf("making a token: status %d, %w", status, err)
		}
		f.ids[i], f.values[i] = made["id"].(string), made["token"].(string)
		return f.both(i, 200)
	})
	began := time.Now()
	spread(t, workers, tokens, func(i int) error {
		status, body, err := f.ask("DELETE", "/servers/"+f.server+"/tokens/"+f.ids[i], "")
		if err != nil || status != 200 {
			return fmt.Errorf("deleting a token: status %d, %v, %w", status, body, err)
		}
		if told := body["revocation"].(map[string]any); told["replicas_confirmed"] != 2.0 {
			return fmt.Errorf("the delete says %v", told)
		}
		return f.both(i, 401)
	})
	t.Logf("%d deletes by %d workers, each with two refusals: %v", tokens, workers, time.Since(began))
	spread(t, workers, tokens, func(i int) error { return f.both(i, 401) })
}

// both wants a status of both pairs.
func (f *flooded) both(i, want int) error {
	for pair := range f.pairs {
		got, err := f.ping(pair, f.values[i])
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("pair %d: status %d, want %d", pair+1, got, want)
		}
	}
	return nil
}

// TestFaultCapIsFreedByCuts: at its stream cap a token can do its upkeep and open
// nothing; when its streams are cut, the places are free at once.
func TestFaultCapIsFreedByCuts(t *testing.T) {
	const most = 256
	echo := testfleet.NewEcho(t, testfleet.Config{})
	server := shared.addServer(t, echo.Origin(), "")
	_, token := shared.addToken(t, server)
	streams := shared.live(t)
	session := streams.session(t, server, token)
	mcp := call{path: "/servers/" + server + "/mcp", token: token, header: map[string]string{"Mcp-Session-Id": session}}
	get := mcp
	get.method = "GET"
	for round := range 3 {
		for range most {
			streams.begin(t, get)
		}
		for _, row := range []struct {
			method, body string
			status, code int
		}{
			{"GET", "", 429, -31429},
			{"POST", rpc("1", "tools/list", ""), 200, -31429},
			{"POST", rpc("1", "ping", ""), 200, 0},
			{"POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, 202, 0},
			{"DELETE", "", 204, 0},
		} {
			c := mcp
			c.method, c.body = row.method, row.body
			if got := shared.do(t, c); got.status != row.status || got.code() != row.code {
				t.Errorf("round %d, beside %d streams: %s %s: status %d, body %s", round, most, row.method, row.body, got.status, got.body)
			}
		}
		shared.mustAsk(t, "POST", "/servers/"+server+"/disable", "", 200)
		eventually(t, 5*time.Second, "the streams end", allEnded(streams))
		shared.mustAsk(t, "POST", "/servers/"+server+"/enable", "", 200)
	}
}

// TestFaultSessionsDeletedInALoop: ending sessions again and again, one's own or one
// that has ended, costs the gateway nothing that stays, and ends nobody else's.
func TestFaultSessionsDeletedInALoop(t *testing.T) {
	const loops, workers = 3000, 8
	f := startFleet(t, 1)
	echo := testfleet.NewEcho(t, testfleet.Config{})
	server := f.addServer(t, echo.Origin(), "")
	_, token := f.addToken(t, server)
	_, otherToken := f.addToken(t, server)
	others := f.pairs[0].live(t)
	otherSession := others.listen(t, server, otherToken, 3)
	ours := f.pairs[0].live(t)
	one := ours.session(t, server, token)
	before := f.pairs[0].metrics(t)
	spread(t, workers, loops, func(i int) error {
		session, want := one, 204
		switch i % 10 {
		case 8: // somebody else's
			session, want = otherSession, 404
		case 9: // no session at all
			session, want = "x"+fmt.Sprint(i), 404
		}
		resp, err := ours.send(call{method: "DELETE", path: "/servers/" + server + "/mcp", token: token, header: map[string]string{"Mcp-Session-Id": session}})
		if err != nil {
			return err
		}
		finish(resp)
		if resp.StatusCode != want {
			return fmt.Errorf("status %d, want %d", resp.StatusCode, want)
		}
		return nil
	})
	eventually(t, 10*time.Second, "nothing is left of the requests", func() bool {
		return f.pairs[0].metrics(t)["go_goroutines"] < before["go_goroutines"]+50
	})
	if open, _ := others.counts(); open != 3 {
		t.Errorf("%d of 3 streams of the other token live", open)
	}
	for _, request := range echo.Requests() {
		if request.Method == "DELETE" && request.Value("Mcp-Session-Id") != testfleet.EchoSession {
			t.Fatalf("the upstream was asked to end %q", request.Value("Mcp-Session-Id"))
		}
	}
	resp, err := ours.send(call{path: "/servers/" + server + "/mcp", token: token, body: initialize})
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("a new session afterwards: %v, %v", resp, err)
	}
	finish(resp)
}
