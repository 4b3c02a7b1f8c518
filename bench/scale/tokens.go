package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// crowd is what many tokens cost.
type crowd struct {
	tokens   int
	rate     float64 // creates/s, all on one server
	cold     durations
	warm     durations
	callRate float64 // first calls/s while the cache was filled
	before   map[string]size
	after    map[string]size
}

// callers is how many clients call, or delete, at a time.
const callers = 8

const sample = 1000 // tokens whose first and second calls are timed

// crowded makes tokens on one server and uses each of them.
func (p *program) crowded(ctx context.Context, g *gateway) (c crowd, err error) {
	c.tokens = p.tokens
	made, err := g.api.addServer(ctx, "crowd", g.url("crowd"))
	if err != nil {
		return c, err
	}
	tokens := make([]madeToken, p.tokens)
	c.rate, err = each(ctx, p.tokens, workers, func(ctx context.Context, i int) (err error) {
		tokens[i], err = g.api.addToken(ctx, made.ID)
		return err
	})
	if err != nil {
		return c, err
	}
	p.say("%d tokens on one server, %.0f/s", p.tokens, c.rate)
	client := g.pairs[0].client
	if c.cold, c.warm, err = coldAndWarm(ctx, client, tokens[:min(sample, len(tokens))]); err != nil {
		return c, err
	}
	p.say("first call with a token p50 %s ms, second one %s ms", c.cold.text(0.5), c.warm.text(0.5))
	if c.before, err = g.sizes(ctx); err != nil {
		return c, err
	}
	rest := tokens[min(sample, len(tokens)):]
	c.callRate, err = each(ctx, len(rest), callers, func(ctx context.Context, i int) error { return client.call(ctx, rest[i]) })
	if err != nil {
		return c, err
	}
	p.say("all of them used once, %.0f/s", c.callRate)
	c.after, err = g.sizes(ctx)
	return c, err
}

// coldAndWarm calls with each token twice, one after the other.
func coldAndWarm(ctx context.Context, to *client, tokens []madeToken) (cold, warm durations, err error) {
	for range 20 { // the connection, and the code
		if err := to.call(ctx, tokens[0]); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range tokens[1:] {
		for _, into := range []*durations{&cold, &warm} {
			took, err := timed(func() error { return to.call(ctx, t) })
			if err != nil {
				return nil, nil, err
			}
			*into = append(*into, took)
		}
	}
	return cold, warm, nil
}

// perCredential is what extauthz keeps of one more token that was used.
func (c crowd) perCredential() float64 {
	used := c.tokens - min(sample, c.tokens)
	return float64(c.after["extauthz"].heap-c.before["extauthz"].heap) / float64(max(1, used))
}

// churned is what tokens leave behind that were made and deleted.
type churned struct {
	tokens        int
	servers       int
	rate          float64 // pairs of create and delete per second
	deletes       durations
	entries       float64 // of the revoked set
	before, after map[string]size
	files         []fileSize
	rates         []float64 // of each tenth
	start         durations // of extauthz afterwards, until the first right answer
}

// perEntry is what extauthz keeps of one revocation.
func (c churned) perEntry() float64 {
	return float64(c.after["extauthz"].heap-c.before["extauthz"].heap) / max(1, c.entries)
}

// fileSize is one file of the data directory.
type fileSize struct {
	name          string
	before, after int64
}

const churnServers = 1000

// churn makes and deletes tokens, spread over many servers. It begins with an
// extauthz that knows nothing yet.
func (p *program) churn(ctx context.Context, g *gateway) (c churned, err error) {
	c.tokens = p.tokens
	servers, err := g.churnServers(ctx, min(churnServers, p.tokens))
	if err != nil {
		return c, err
	}
	c.servers = len(servers)
	if err := g.startAgain(ctx, servers[0], 1, new(durations)); err != nil {
		return c, err
	}
	if err := g.settled(ctx, servers[0]); err != nil {
		return c, err
	}
	if c.before, err = g.sizes(ctx); err != nil {
		return c, err
	}
	files := g.fileSizes()
	if err := p.churnAll(ctx, g, servers, &c); err != nil {
		return c, err
	}
	if c.after, err = g.sizes(ctx); err != nil {
		return c, err
	}
	for name, after := range g.fileSizes() {
		c.files = append(c.files, fileSize{name, files[name], after})
	}
	of := newAPI(g.adminOf(g.pairs[0]))
	defer of.close()
	if c.entries, err = of.metric(ctx, "arbiter_revoked_entries"); err != nil {
		return c, err
	}
	return c, g.startAgain(ctx, servers[0], restarts, &c.start)
}

func (g *gateway) churnServers(ctx context.Context, n int) ([]string, error) {
	servers := make([]string, n)
	_, err := each(ctx, n, workers, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("churn-%d", i)
		made, err := g.api.addServer(ctx, name, g.url(name))
		servers[i] = made.ID
		return err
	})
	return servers, err
}

// churnAll does it in tenths, to see whether the last one is slower.
func (p *program) churnAll(ctx context.Context, g *gateway, servers []string, c *churned) error {
	began := time.Now()
	for range tenths {
		rate, err := p.churnPart(ctx, g, servers, c)
		if err != nil {
			return err
		}
		c.rates = append(c.rates, rate)
	}
	c.rate = float64(c.tokens) / time.Since(began).Seconds()
	p.say("%d tokens made and deleted, %.0f/s (first tenth %.0f/s, last %.0f/s)", c.tokens, c.rate, c.rates[0], c.rates[len(c.rates)-1])
	return nil
}

const tenths = 10

func (p *program) churnPart(ctx context.Context, g *gateway, servers []string, c *churned) (rate float64, err error) {
	n := max(1, c.tokens/tenths)
	took := make(durations, n)
	rate, err = each(ctx, n, callers, func(ctx context.Context, i int) error {
		t, err := g.api.addToken(ctx, servers[i%len(servers)])
		if err != nil {
			return err
		}
		took[i], err = timed(func() error { _, err := g.api.deleteToken(ctx, t); return err })
		return err
	})
	c.deletes = append(c.deletes, took...)
	return rate, err
}

// fileSizes are the files that grow, by name: the database and what it writes
// beside it, journals and records.
func (g *gateway) fileSizes() map[string]int64 {
	out := map[string]int64{}
	entries, _ := os.ReadDir(g.dir) // what is not there has no size
	for _, entry := range entries {
		name := entry.Name()
		if info, err := os.Stat(filepath.Join(g.dir, name)); err == nil &&
			(strings.HasPrefix(name, "arbiter.db") || strings.HasSuffix(name, ".jsonl")) {
			out[name] = info.Size()
		}
	}
	return out
}
