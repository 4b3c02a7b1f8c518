package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/report"
)

// scale measures servers, tokens and churn with one pair, and writes it down.
func (p *program) scale(ctx context.Context) (string, error) {
	g, err := p.start(ctx, "scale", 1)
	if err != nil {
		return "", err
	}
	defer g.stop()
	var all []standing
	have := 0
	for _, n := range p.servers {
		s, err := p.stand(ctx, g, have, n)
		if err != nil {
			return "", fmt.Errorf("%d servers: %w", n, err)
		}
		all, have = append(all, s), n
	}
	c, err := p.crowded(ctx, g)
	if err != nil {
		return "", fmt.Errorf("%d tokens: %w", p.tokens, err)
	}
	e, err := p.churn(ctx, g)
	if err != nil {
		return "", fmt.Errorf("churn of %d tokens: %w", p.tokens, err)
	}
	return strings.Join([]string{goals(wanted(all[len(all)-1], all[0], c, e)), servers(all), memory(all), tokens(c), churn(e), scaleNotes}, "\n"), nil
}

const scaleNotes = `One control, one extauthz and one Envoy, all settings at their defaults but two worker threads of Envoy. Servers have one upstream URL each.
"Memory" is the resident set, the program included; "live heap" what is left after a garbage collection, of control what its last one left. extauthz' heap has 50 MiB that its cache of credentials keeps for counters, of which memory has what was touched.
"Usable" counts from the answer to the create of a server until Envoy has passed on the first right answer of its upstream; in between a token was made and used for the first time.
A start counts from the start of the process. That of control ends when a token that it has just made is accepted.
Revocation entries leave 15 minutes after a delete, or after the server's call limit and 5 minutes if that is longer: out of the database within a minute more, its pages used again (tests of [store](../internal/store/churn_test.go)). Journals, records and changes are bounded as [operations](operations.md) says.
`

// goal is one line of the table of aims; a bound of 0 is none.
type goal struct {
	what       string
	measured   float64
	format     string
	first, aim float64 // at most
}

func wanted(most, least standing, c crowd, e churned) []goal {
	perServer := float64(most.started["extauthz"].heap-least.started["extauthz"].heap) / float64(max(1, most.servers-least.servers))
	return []goal{
		{fmt.Sprintf("a new server, with %d: usable after the answer, the most of %d", most.servers, len(most.usable)), ms(most.usable.at(1)), "%.1f ms", 100, 50},
		{"extauthz: per server", perServer, "%.0f bytes", 0, 500},
		{"extauthz: per cached credential", c.perCredential(), "%.0f bytes", 0, 320},
		{"extauthz: per revoked entry", e.perEntry(), "%.0f bytes", 0, 32},
		{fmt.Sprintf("extauthz started with %d servers and %.0f revocations: first right answer", most.servers, e.entries), ms(e.start.at(0.5)), "%.0f ms", 0, 500},
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func goals(all []goal) string {
	if len(all) == 0 {
		return ""
	}
	rows := [][]string{{"what", "measured", "first", "", "aim", ""}}
	for _, g := range all {
		row := []string{g.what, fmt.Sprintf(g.format, g.measured)}
		for _, bound := range []float64{g.first, g.aim} {
			switch {
			case bound == 0:
				row = append(row, "", "")
			case g.measured <= bound:
				row = append(row, "<= "+fmt.Sprintf(g.format, bound), "met")
			default:
				row = append(row, "<= "+fmt.Sprintf(g.format, bound), "**missed**")
			}
		}
		rows = append(rows, row)
	}
	return report.Table(rows)
}

func servers(all []standing) string {
	rows := [][]string{{
		"servers", "made per second", "one more: answered, p50 ms", "most", "usable after that, p50 ms", "most", "of which the token, p50",
		"extauthz started: first right answer, ms", "control started: API, ms", "first right answer, ms",
		"idle CPU, ms/s: " + strings.Join(roles, ", "),
	}}
	for _, s := range all {
		rate, idle := "", []string{}
		if s.rate > 0 {
			rate = fmt.Sprintf("%.0f", s.rate)
		}
		for _, role := range roles {
			idle = append(idle, fmt.Sprintf("%.1f", s.idle[role]))
		}
		rows = append(rows, []string{
			fmt.Sprint(s.servers), rate, s.answered.text(0.5), s.answered.most(), s.usable.text(0.5), s.usable.most(), s.token.text(0.5),
			s.extauthz.text(0.5), s.control.text(0.5), s.serving.text(0.5), strings.Join(idle, ", "),
		})
	}
	return report.Table(rows)
}

func memory(all []standing) string {
	rows := [][]string{{"servers", "process", "memory after they were made, MiB", "live heap, MiB", "memory after a start, MiB", "live heap, MiB", "heap per server, bytes"}}
	for _, s := range all {
		for _, role := range roles {
			per, heaps := "", [2]string{}
			if role != "envoy" {
				heaps = [2]string{mib(s.filled[role].heap), mib(s.started[role].heap)}
				if s.servers > all[0].servers {
					more := s.started[role].heap - all[0].started[role].heap
					per = fmt.Sprintf("%.0f", float64(more)/float64(s.servers-all[0].servers))
				}
			}
			rows = append(rows, []string{
				fmt.Sprint(s.servers), role, mib(s.filled[role].rss), heaps[0], mib(s.started[role].rss), heaps[1], per,
			})
		}
	}
	return report.Table(rows)
}

func tokens(c crowd) string {
	return report.Table([][]string{
		{fmt.Sprintf("%d tokens on one server", c.tokens), ""},
		{"made per second, through the API", fmt.Sprintf("%.0f", c.rate)},
		{"first call with a token, alone: p50, p99", c.cold.text(0.5) + " ms, " + c.cold.text(0.99) + " ms"},
		{"second call: p50, p99", c.warm.text(0.5) + " ms, " + c.warm.text(0.99) + " ms"},
		{fmt.Sprintf("first calls per second, %d at a time", callers), fmt.Sprintf("%.0f", c.callRate)},
		{"extauthz, live heap before and after", mib(c.before["extauthz"].heap) + " MiB, " + mib(c.after["extauthz"].heap) + " MiB"},
		{"extauthz, memory before and after", mib(c.before["extauthz"].rss) + " MiB, " + mib(c.after["extauthz"].rss) + " MiB"},
		{"per cached credential", fmt.Sprintf("%.0f bytes", c.perCredential())},
	})
}

func churn(c churned) string {
	rows := [][]string{
		{fmt.Sprintf("%d tokens made and deleted, %d at a time, on %d servers", c.tokens, callers, c.servers), "before", "after"},
		{"per second; in the first and in the last tenth", "", fmt.Sprintf("%.0f; %.0f, %.0f", c.rate, c.rates[0], c.rates[len(c.rates)-1])},
		{"a delete's answer: p50, p99", "", c.deletes.text(0.5) + " ms, " + c.deletes.text(0.99) + " ms"},
		{"entries of the revoked set", "0", fmt.Sprintf("%.0f", c.entries)},
	}
	for _, role := range []string{"extauthz", "control"} {
		before, after := c.before[role], c.after[role]
		rows = append(rows, []string{role + ", live heap, MiB", mib(before.heap), mib(after.heap)},
			[]string{role + ", memory, MiB", mib(before.rss), mib(after.rss)})
	}
	rows = append(rows, []string{"extauthz, live heap per entry, bytes", "", fmt.Sprintf("%.0f", c.perEntry())},
		[]string{"extauthz started: first right answer, ms", "", c.start.text(0.5)})
	slices.SortFunc(c.files, func(a, b fileSize) int { return cmp.Compare(a.name, b.name) })
	for _, f := range c.files {
		rows = append(rows, []string{"`" + f.name + "`, MiB", mib(f.before), mib(f.after)})
	}
	return report.Table(rows)
}
