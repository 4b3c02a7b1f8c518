package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"
)

// measurement is a bench and what it found.
type measurement struct {
	*bench

	options  options
	h2load   string
	out      io.Writer
	bodyFile string
	halfRate int               // requests/s of every arm at half load
	rounds   []map[string]both // what each round found, by arm
	began    time.Time
}

// both are one arm's two runs of a round.
type both struct{ full, half result }

const (
	// clientMost is how much of one core h2load, which has one thread, may use
	// before it is what is measured.
	clientMost = 0.90
	// slack is how far below the asked rate a run at half load may stay.
	slack = 0.95
)

// all warms every arm, finds the rate of half load, and measures the rounds.
func (m *measurement) all(ctx context.Context) (err error) {
	m.began = time.Now()
	if m.bodyFile, err = m.writeBody(); err != nil {
		return err
	}
	for _, a := range m.arms {
		r, err := m.one(ctx, a, 2*time.Second, 0)
		if err != nil {
			return err
		}
		if a.name == armNoop || m.halfRate == 0 { // without that arm, the first one's
			m.halfRate = perClient(r.rate/2) * connections
		}
		m.say("warm:    %-12s %7.0f requests/s\n", a.name, r.rate)
	}
	for i := range m.options.rounds {
		order := slices.Clone(m.arms)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		found, err := m.round(ctx, order)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		m.rounds = append(m.rounds, found)
	}
	return nil
}

func (m *measurement) round(ctx context.Context, order []*arm) (map[string]both, error) {
	found := map[string]both{}
	for _, a := range order {
		of, err := m.runs(ctx, a)
		if err != nil {
			return nil, err
		}
		found[a.name] = of
		m.say("round %d: %-12s %7.0f requests/s, ext_authz %3.0f us; at %4.0f/s p50 %v p99 %v; others used %.2f cores\n", len(m.rounds)+1,
			a.name, of.full.rate, cpuOf("authz")(of), of.half.rate, of.half.p50, of.half.p99, of.full.usage.others)
	}
	return found, nil
}

// runs measures an arm at saturation and at half load, its idle streams open.
func (m *measurement) runs(ctx context.Context, a *arm) (of both, err error) {
	if len(a.holders) > 0 {
		if err := a.streamsGone(ctx); err != nil {
			return of, err
		}
		open, err := openStreams(ctx, a.trusts, a.holders)
		if err != nil {
			return of, fmt.Errorf("%s: %w", a.name, err)
		}
		defer open.close()
	}
	if of.full, err = m.one(ctx, a, m.options.measure, 0); err != nil {
		return of, err
	}
	if used := of.full.usage.part[clientName]; used > clientMost {
		return of, fmt.Errorf("%s: h2load used %.2f of its one core: it is the limit, not what it asks", a.name, used)
	}
	if m.options.half > 0 {
		of.half, err = m.one(ctx, a, m.options.half, m.halfRate)
	}
	return of, err
}

// one measures an arm once: one right answer first, no denial meanwhile.
func (m *measurement) one(ctx context.Context, a *arm, measure time.Duration, rate int) (r result, err error) {
	if err := a.check(ctx, toolCall(callSize)); err != nil {
		return r, err
	}
	before, err := a.denials(ctx)
	if err != nil {
		return r, err
	}
	l := load{h2load: m.h2load, url: a.url, headers: a.headers, bodyFile: m.bodyFile, parts: a.parts}
	if rate > 0 {
		r, err = l.pace(ctx, rate, measure, filepath.Join(m.dir, "h2load.log"))
	} else {
		r, err = l.saturate(ctx, measure)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", a.name, errors.Join(err, m.alive()))
	}
	after, err := a.denials(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("%s: Arbiter denied %d requests", a.name, after-before)
	}
	return r, err
}

// say tells whoever waits how far it is. What cannot be printed is no fault.
func (m *measurement) say(format string, args ...any) { _, _ = fmt.Fprintf(m.out, format, args...) }
