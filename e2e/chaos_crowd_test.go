//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// crowd are the live streams of many tokens over one pair.
type crowd struct {
	*tenants
	server      string
	ids, values []string
	open        []atomic.Int64 // streams of each token that live
	ctx         context.Context
	reading     sync.WaitGroup
}

// gather opens the same number of streams for each token, each token's over a
// connection of its own.
func gather(t *testing.T, n *tenants, tokens, streams int) *crowd {
	t.Helper()
	c := &crowd{tenants: n, open: make([]atomic.Int64, tokens)}
	var ok bool
	if c.server, ok = n.server(t.Context()); !ok {
		t.Fatal("no server")
	}
	c.ids, c.values = n.fleet.tokens(t, c.server, tokens)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		c.reading.Wait()
	})
	c.ctx = ctx
	var group errgroup.Group
	group.SetLimit(8)
	for i := range tokens {
		client := &http.Client{Transport: n.fleet.pairs[0].transport(t, true)}
		group.Go(func() error {
			for range streams {
				if err := c.begin(client, i); err != nil {
					return fmt.Errorf("token %d: %w", i, err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

// begin opens one stream in a session of its own.
func (c *crowd) begin(client *http.Client, i int) error {
	v := visit{c.doors[0], mark{server: c.server, token: c.ids[i], pair: "1"}, c.values[i]}
	session := c.session(c.ctx, v)
	if session == "" {
		return fmt.Errorf("no session")
	}
	resp, err := c.send(c.ctx, client, v, listenCall(session))
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 {
		resp.Body.Close()
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	c.open[i].Add(1)
	c.reading.Go(func() {
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			c.event(lines.Text())
		}
		c.open[i].Add(-1)
	})
	return nil
}

// living counts the streams of all tokens.
func (c *crowd) living() (n int64) {
	for i := range c.open {
		n += c.open[i].Load()
	}
	return n
}

// TestFaultManyStreams: streams of a hundred tokens over one pair. A delete ends one
// token's and no other; disabling the server ends all; what they took is given
// back; and when extauthz dies, they end with it.
func TestFaultManyStreams(t *testing.T) {
	const tokens = 100
	streams := 20 // of each token; 10,000 in all in a run of faults
	if os.Getenv("FAULTTIME") != "" {
		streams = 100
	}
	f := startFleet(t, 1, "ARBITER_LEASE=5s")
	n := newTenants(t, f, newPromises(t, 5*time.Second))
	pair := f.pairs[0]
	before := pair.metrics(t)
	var memory [2]float64
	for round := range memory {
		began := time.Now()
		c := gather(t, n, tokens, streams)
		t.Logf("%d streams in %v", c.living(), time.Since(began))
		memory[round] = pair.metrics(t)["process_resident_memory_bytes"]
		c.endsOne(t)
		c.endsAll(t)
		eventually(t, 10*time.Second, "nothing is left of the streams", func() bool {
			now := pair.metrics(t)
			return now["arbiter_streams_live"] == 0 && now["go_goroutines"] < before["go_goroutines"]+100
		})
	}
	after := pair.metrics(t)
	t.Logf("memory of extauthz: %.0f MiB at the start, %.0f and %.0f with the streams; goroutines %v and %v",
		before["process_resident_memory_bytes"]/(1<<20), memory[0]/(1<<20), memory[1]/(1<<20), before["go_goroutines"], after["go_goroutines"])
	if memory[1] > 1.5*memory[0] {
		t.Error("the second crowd took more memory than the first: something stays")
	}
	gather(t, n, tokens, streams).endWith(t, pair)
	n.check(t)
}

// endsOne deletes one token.
func (c *crowd) endsOne(t *testing.T) {
	t.Helper()
	each, all := c.open[0].Load(), c.living()
	told := c.fleet.mustAsk(t, "DELETE", "/servers/"+c.server+"/tokens/"+c.ids[0], "", 200)["revocation"].(map[string]any)
	c.ended(c.ids[0])
	if told["streams_ended"] != float64(each) || told["replicas_confirmed"] != 1.0 {
		t.Errorf("the delete of a token with %d streams says %v", each, told)
	}
	eventually(t, 2*time.Second, "the token's streams end", func() bool { return c.open[0].Load() == 0 })
	if got := c.living(); got != all-each {
		t.Errorf("%d streams of other tokens live, want %d", got, all-each)
	}
}

// endsAll disables the server.
func (c *crowd) endsAll(t *testing.T) {
	t.Helper()
	all := c.living()
	told := c.fleet.mustAsk(t, "POST", "/servers/"+c.server+"/disable", "", 200)["revocation"].(map[string]any)
	c.ended(c.server)
	if told["streams_ended"] != float64(all) || told["replicas_confirmed"] != 1.0 {
		t.Errorf("disabling a server with %d streams says %v", all, told)
	}
	eventually(t, 5*time.Second, "all streams end", func() bool { return c.living() == 0 })
}

// endWith kills the pair's extauthz: a guard that is gone guards nothing, so
// nothing streams.
func (c *crowd) endWith(t *testing.T, p *pair) {
	t.Helper()
	began := time.Now()
	p.extauthz.kill(t)
	eventually(t, 5*time.Second, "all streams end with their guard", func() bool { return c.living() == 0 })
	t.Logf("all ended %v after the kill", time.Since(began))
	ask := func() int {
		return c.ping(t, visit{c.doors[0], mark{server: c.server, token: c.ids[1], pair: "1"}, c.values[1]})
	}
	for range 20 {
		if got := ask(); got != 503 {
			t.Errorf("without extauthz: status %d", got)
		}
	}
	p.extauthz.start(t)
	eventually(t, 2*chaosLease, "requests are allowed again", func() bool { return ask() == 200 })
}
