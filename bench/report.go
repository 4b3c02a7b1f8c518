package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
	"github.com/arbiter-gateway/arbiter/bench/report"
)

// quiet is how many cores other processes may have used, in the median round,
// for the figures to be worth keeping.
const quiet = 0.10

// report prints the figures, and writes them where they are asked for.
func (m *measurement) report(ctx context.Context, args []string) error {
	version, err := child.Output(child.Command(ctx, m.envoy, "--version"))
	if err != nil {
		return err
	}
	text := report.Machine(ctx, m.began,
		[2]string{"Envoy", envoyVersion(string(version))},
		[2]string{"command", "`go run ./bench " + strings.Join(args, " ") + "`"},
		[2]string{"rounds", fmt.Sprintf("%d; each arm %v at saturation, %v at half load", m.options.rounds, m.options.measure, m.options.half)},
	) + "\n" + m.targets() + "\n" + m.figures() + "\n" + m.machine()
	m.say("\n%s", text)
	if m.options.write == "" {
		return nil
	}
	section := "bench"
	if m.options.policies {
		section = "policies"
	}
	return report.Write(m.options.write, section, text)
}

// envoyVersion finds the version in "PATH  version: HASH/1.40.0/Clean/...".
func envoyVersion(text string) string {
	_, version, _ := strings.Cut(text, "version: ")
	parts := strings.Split(version, "/")
	if len(parts) < 2 {
		return "unknown"
	}
	return parts[1]
}

// target is one line of the table of aims; a bound of 0 is none.
type target struct {
	what       string
	values     []float64
	format     string
	atMost     bool // else at least
	first, aim float64
}

// wanted are the aims that this program can judge.
func (m *measurement) wanted() []target {
	all := []target{
		{"CPU of extauthz per Check, against the no-op", m.ratios(armRPC, armNoop, cpuOf("authz")), "%.2fx", true, 1.3, 0.4},
		{"requests/s of `/rpc`, against the no-op", m.ratios(armRPC, armNoop, rate), "%.2fx", false, 0.85, 1.35},
		{"CPU of all processes per request of `/rpc`, against the no-op", m.ratios(armRPC, armNoop, cpu), "%.2fx", true, 0, 0},
		{"requests/s of `/rpc`, against Envoy alone", m.ratios(armRPC, armAlone, rate), "%.2fx", false, 0, 0.50},
		{"CPU of extauthz per request, against the other build", m.ratios(armRPC, armOther, cpuOf("authz")), "%.2fx", true, 0, 0},
		{"requests/s, against the other build", m.ratios(armRPC, armOther, rate), "%.2fx", false, 0, 0},
	}
	for _, pair := range policyPairs {
		all = append(all,
			target{"CPU of the server with stock OPA per Check, against extauthz: " + pair.what, m.ratios(pair.theirs, pair.ours, cpuOf("authz")), "%.2fx", false, 2, 2},
			target{"requests/s, against Envoy + the server with stock OPA: " + pair.what, m.ratios(pair.ours, pair.theirs, rate), "%.2fx", false, 1.3, 2},
		)
	}
	if m.options.half > 0 {
		all = append(all,
			target{"latency added over Envoy alone at half load, p50", m.differences(armRPC, armAlone, p50), "%.0f us", true, 0, 250},
			target{"latency added over Envoy alone at half load, p99", m.differences(armRPC, armAlone, p99), "%.0f us", true, 0, 1000},
		)
	}
	return all
}

func (m *measurement) targets() string {
	rows := [][]string{{"what", "measured", "first", "", "aim", ""}}
	for _, t := range m.wanted() {
		if len(t.values) == 0 {
			continue
		}
		s := summary(t.values)
		row := []string{t.what, s.text(t.format)}
		for _, bound := range []float64{t.first, t.aim} {
			row = append(row, t.bound(bound), t.verdict(s.median, bound))
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return ""
	}
	return report.Table(rows)
}

func (t target) bound(bound float64) string {
	switch {
	case bound == 0:
		return ""
	case t.atMost:
		return "<= " + fmt.Sprintf(t.format, bound)
	}
	return ">= " + fmt.Sprintf(t.format, bound)
}

func (t target) verdict(measured, bound float64) string {
	switch {
	case bound == 0:
		return ""
	case measured <= bound == t.atMost || measured == bound:
		return "met"
	}
	return "**missed**"
}

// figures are one row per arm.
func (m *measurement) figures() string {
	head := []string{
		"arm", "requests/s", "to no-op", "to Envoy alone",
		"CPU us/request: all", "Envoy", "ext_authz", "control", "upstream", "client",
	}
	if m.options.half > 0 {
		head = append(head, fmt.Sprintf("at %d/s: p50 us", m.halfRate), "p99 us")
	}
	rows := [][]string{head}
	for _, a := range m.arms {
		row := []string{
			a.what, summary(m.over(a.name, rate)).text("%.0f"),
			m.ratioText(a.name, armNoop), m.ratioText(a.name, armAlone),
			summary(m.over(a.name, cpu)).text("%.0f"),
		}
		for _, part := range []string{"envoy", "authz", "control", "upstream", clientName} {
			row = append(row, m.cpuText(a, part))
		}
		if m.options.half > 0 {
			row = append(row, m.latencyText(a.name, p50), m.latencyText(a.name, p99))
		}
		rows = append(rows, row)
	}
	return report.Table(rows)
}

func (m *measurement) ratioText(arm, base string) string {
	ratios := m.ratios(arm, base, rate)
	if len(ratios) == 0 || arm == base {
		return ""
	}
	return summary(ratios).text("%.2f")
}

func (m *measurement) cpuText(a *arm, part string) string {
	if _, has := a.parts[part]; !has && part != clientName {
		return ""
	}
	return summary(m.over(a.name, cpuOf(part))).text("%.0f")
}

// latencyText says when an arm could not take the rate of half load: its
// latency is then the length of a queue.
func (m *measurement) latencyText(arm string, of figure) string {
	text := summary(m.over(arm, of)).text("%.0f")
	held := summary(m.over(arm, func(b both) float64 { return b.half.rate }))
	if held.least < slack*float64(m.halfRate) {
		text += fmt.Sprintf(" at %.0f/s only", held.median)
	}
	return text
}

// machine says whether the figures can be trusted.
func (m *measurement) machine() string {
	var client, idle, others []float64
	for _, a := range m.arms {
		client = append(client, m.over(a.name, func(b both) float64 { return b.full.usage.part[clientName] })...)
		idle = append(idle, m.over(a.name, func(b both) float64 { return b.full.usage.idle })...)
		others = append(others, m.over(a.name, func(b both) float64 { return b.full.usage.others })...)
	}
	text := fmt.Sprintf("h2load used %s of one core, of which it can use no more than one; %s cores were idle, %s were used by other processes. Whole run: %v.\n",
		summary(client).text("%.2f"), summary(idle).text("%.2f"), summary(others).text("%.2f"), time.Since(m.began).Round(time.Second))
	if summary(others).median > quiet {
		text += fmt.Sprintf("\n**Others used more than %.2f cores: figures of a busy machine. Measure again.**\n", quiet)
	}
	return text
}
