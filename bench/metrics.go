package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// denials is how many requests this arm's Arbiter has denied so far. Faults are
// 503, which h2load sees; the calls that it breaks off at its end are faults too.
func (a *arm) denials(ctx context.Context) (int, error) {
	if a.gateway == nil {
		return 0, nil
	}
	return a.gateway.metric(ctx, "arbiter_decisions_total", `outcome="deny"`)
}

// streamsGone waits until no stream of earlier runs is left: Guard hears of a
// closed one a moment later.
func (a *arm) streamsGone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		live, err := a.gateway.metric(ctx, "arbiter_streams_live", "")
		if err != nil || live == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d streams that were closed are still counted", live)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// metric asks extauthz for a metric, summed over the series that have a label.
func (g *arbiter) metric(ctx context.Context, name, label string) (int, error) {
	text, err := fetch(ctx, filepath.Join(g.dir, "run", "extauthz-admin.sock"), "/metrics")
	if err != nil {
		return 0, err
	}
	return sumOf(string(text), name, label)
}

// sumOf reads Prometheus text. A metric that is not there at all is an error:
// what cannot be seen must not count as nothing.
func sumOf(text, name, label string) (int, error) {
	sum, found := 0.0, false
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(line, " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		found = true
		if !strings.Contains(series, label) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, fmt.Errorf("reading metrics: %q: %w", line, err)
		}
		sum += n
	}
	if !found {
		return 0, fmt.Errorf("extauthz has no metric %s", name)
	}
	return int(sum), nil
}
