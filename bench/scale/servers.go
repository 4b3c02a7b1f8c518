package main

import (
	"context"
	"fmt"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
)

// roles are the processes whose memory and CPU are told, in this order.
var roles = []string{"envoy", "extauthz", "control"}

// size is what a process takes.
type size struct {
	rss  int64 // of the machine's memory
	heap int64 // live objects of a Go program; 0 of Envoy
}

// standing is what a gateway costs with a number of servers.
type standing struct {
	servers  int
	rate     float64 // creates/s through the API while it was filled; 0: nothing to do
	filled   map[string]size
	started  map[string]size // the same after each role was started anew
	idle     map[string]float64
	answered durations // a create's answer
	usable   durations // from there to the first right answer through Envoy, with a token made meanwhile
	token    durations // of which: the token's create

	extauthz durations // from the start of the process to the first right answer through Envoy
	control  durations // to the first answer of the API
	serving  durations // to the first right answer through Envoy to a token made by this control
}

const (
	oneMore  = 20 // servers made one by one
	restarts = 5
	idleFor  = 15 * time.Second
)

// url is the upstream of one server, each another one.
func (g *gateway) url(name string) string {
	return "http://" + g.upstream.String() + "/" + name
}

// fill makes servers until there are n; the names go on from those there are.
func (g *gateway) fill(ctx context.Context, have, n int) (rate float64, err error) {
	return each(ctx, n-have, workers, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("server-%06d", have+i)
		var made madeServer
		err := g.api.ask(ctx, "POST", "/servers", map[string]string{"name": name, "mcp": g.url(name)}, &made)
		if err == nil && !made.Applied {
			err = fmt.Errorf("server %s is not applied: %s", name, made.Reason)
		}
		return err
	})
}

// stand measures the gateway with n servers, of which there are have already.
func (p *program) stand(ctx context.Context, g *gateway, have, n int) (s standing, err error) {
	s = standing{servers: n}
	if n > have {
		p.say("making %d servers", n-have)
		if s.rate, err = g.fill(ctx, have, n); err != nil {
			return s, err
		}
		p.say("%d servers, %.0f/s", n, s.rate)
	}
	if s.filled, err = g.sizes(ctx); err != nil {
		return s, err
	}
	if err := p.addOneByOne(ctx, g, &s); err != nil {
		return s, err
	}
	p.say("one more server: answered %s ms, usable %s ms later (p50)", s.answered.text(0.5), s.usable.text(0.5))
	if err := p.startAnew(ctx, g, &s); err != nil {
		return s, err
	}
	if s.started, err = g.sizes(ctx); err != nil {
		return s, err
	}
	s.idle, err = g.idleCPU(ctx)
	return s, err
}

// addOneByOne makes servers that are used at once.
func (p *program) addOneByOne(ctx context.Context, g *gateway, s *standing) error {
	for i := range oneMore {
		name := fmt.Sprintf("more-%d-%d", s.servers, i)
		began := time.Now()
		made, err := g.api.addServer(ctx, name, g.url(name))
		if err != nil {
			return err
		}
		answered := time.Now()
		token, err := g.api.addToken(ctx, made.ID)
		if err != nil {
			return err
		}
		hasToken := time.Now()
		good, err := until(ctx, 0, func(ctx context.Context) error { return g.pairs[0].client.call(ctx, token) })
		if err != nil {
			return err
		}
		s.answered = append(s.answered, answered.Sub(began))
		s.token = append(s.token, hasToken.Sub(answered))
		s.usable = append(s.usable, good.Sub(answered))
	}
	return nil
}

// startAnew starts extauthz and control several times, and in the end waits for
// what control waits for after a start.
func (p *program) startAnew(ctx context.Context, g *gateway, s *standing) error {
	made, err := g.api.addServer(ctx, fmt.Sprintf("start-%d", s.servers), g.url("start"))
	if err != nil {
		return err
	}
	if err := g.startAgain(ctx, made.ID, restarts, &s.extauthz); err != nil {
		return err
	}
	for range restarts {
		if err := g.restartControl(ctx, made.ID, s); err != nil {
			return fmt.Errorf("control after a start: %w", err)
		}
	}
	p.say("first right answer after a start: extauthz %s ms, control %s ms (p50)", s.extauthz.text(0.5), s.serving.text(0.5))
	return g.settled(ctx, made.ID)
}

// startAgain ends and starts extauthz some times.
func (g *gateway) startAgain(ctx context.Context, server string, times int, took *durations) error {
	first := g.pairs[0]
	token, err := g.api.addToken(ctx, server)
	if err != nil {
		return err
	}
	for range times {
		began, err := g.restart(ctx, &first.extauthz, "extauthz", first.number)
		if err != nil {
			return err
		}
		good, err := until(ctx, time.Millisecond, func(ctx context.Context) error { return first.client.call(ctx, token) })
		if err != nil {
			return fmt.Errorf("extauthz after a start: %w", err)
		}
		*took = append(*took, good.Sub(began))
	}
	return nil
}

// restartControl counts until a token that only the new control can know is
// taken. Decisions of tokens that extauthz knows go on meanwhile.
func (g *gateway) restartControl(ctx context.Context, server string, s *standing) error {
	began, err := g.restart(ctx, &g.control, "control", "")
	if err != nil {
		return err
	}
	var token madeToken
	answered, err := until(ctx, time.Millisecond, func(ctx context.Context) (err error) {
		token, err = g.api.addToken(ctx, server)
		return err
	})
	if err != nil {
		return err
	}
	good, err := until(ctx, time.Millisecond, func(ctx context.Context) error { return g.pairs[0].client.call(ctx, token) })
	if err != nil {
		return err
	}
	s.control = append(s.control, answered.Sub(began))
	s.serving = append(s.serving, good.Sub(began))
	return nil
}

// settled waits until nobody but who runs may hold a lease: a delete waits for
// an extauthz that has ended as long as it may still have one.
func (g *gateway) settled(ctx context.Context, server string) error {
	_, err := until(ctx, 0, func(ctx context.Context) error {
		token, err := g.api.addToken(ctx, server)
		if err == nil {
			_, err = g.api.deleteToken(ctx, token)
		}
		return err
	})
	return err
}

// sizes reads the memory of the first pair and control.
func (g *gateway) sizes(ctx context.Context) (map[string]size, error) {
	out := map[string]size{}
	first := g.pairs[0]
	of := newAPI(g.adminOf(first))
	defer of.close()
	for _, role := range roles {
		var s size
		var err error
		pid := first.envoy
		switch role {
		case "extauthz":
			pid = first.extauthz.PID()
			s.heap, err = of.heap(ctx, true)
		case "control":
			pid = g.control.PID()
			s.heap, err = g.api.heap(ctx, false)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", role, err)
		}
		if s.rss, err = child.Memory(pid); err != nil {
			return nil, fmt.Errorf("%s: %w", role, err)
		}
		out[role] = s
	}
	return out, nil
}

// idleCPU is what each role uses while nobody calls, in milliseconds per second.
func (g *gateway) idleCPU(ctx context.Context) (map[string]float64, error) {
	pids := map[string]int{"envoy": g.pairs[0].envoy, "extauthz": g.pairs[0].extauthz.PID(), "control": g.control.PID()}
	before, began := map[string]time.Duration{}, time.Now()
	for role, pid := range pids {
		used, err := child.CPU(pid)
		if err != nil {
			return nil, err
		}
		before[role] = used
	}
	select {
	case <-time.After(idleFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := map[string]float64{}
	for role, pid := range pids {
		used, err := child.CPU(pid)
		if err != nil {
			return nil, err
		}
		out[role] = float64((used - before[role]).Microseconds()) / 1000 / time.Since(began).Seconds()
	}
	return out, nil
}
