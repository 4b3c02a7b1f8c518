package main

import (
	"strings"
	"testing"
	"time"
)

// measured is a measurement of one pair of rounds: the arms at its ends were
// slower or faster in one than in the other, and equal in sum.
func measured() *measurement {
	m := &measurement{bench: &bench{}, options: options{half: time.Second}, halfRate: 1000, began: time.Now()}
	for _, name := range []string{armAlone, armNoop, armRPC} {
		m.arms = append(m.arms, &arm{name: name, what: "arm " + name, parts: map[string]int{"envoy": 1, "authz": 2}})
	}
	run := func(rate, envoy, authz float64, p50 time.Duration) both {
		return both{
			full: result{rate: rate, usage: usage{part: map[string]float64{"envoy": envoy, "authz": authz, clientName: 0.5}}},
			half: result{rate: 1000, p50: p50, p99: 2 * p50},
		}
	}
	m.rounds = []map[string]both{
		{armAlone: run(9000, 1, 0, 100*time.Microsecond), armNoop: run(4000, 1, 0.2, 200*time.Microsecond), armRPC: run(3000, 1, 0.3, 300*time.Microsecond)},
		{armAlone: run(7000, 1, 0, 100*time.Microsecond), armNoop: run(4000, 1, 0.2, 200*time.Microsecond), armRPC: run(5000, 1, 0.3, 500*time.Microsecond)},
	}
	return m
}

func TestRatiosAreOfPairs(t *testing.T) {
	m := measured()
	if got := m.ratios(armRPC, armNoop, rate); len(got) != 1 || got[0] != 1 { // (3000+5000)/(4000+4000)
		t.Errorf("ratios %v", got)
	}
	twice := measured()
	twice.rounds = append(twice.rounds, twice.rounds...)
	if got := twice.ratios(armRPC, armNoop, rate); len(got) != 2 || got[1] != 1 {
		t.Errorf("ratios of two pairs %v", got)
	}
	if got := m.differences(armRPC, armAlone, p50); len(got) != 1 || got[0] != 300 {
		t.Errorf("differences %v", got)
	}
	if got := m.ratios(armRPC, armOther, rate); got != nil {
		t.Errorf("ratios to an arm that was not measured: %v", got)
	}
	if got := cpuOf("authz")(m.rounds[0][armRPC]); got < 99.9 || got > 100.1 { // 0.3 cores at 3,000/s
		t.Errorf("CPU per request is %v us", got)
	}
}

func TestSummary(t *testing.T) {
	for _, row := range []struct {
		values []float64
		want   spanOf
	}{
		{[]float64{3, 1, 2}, spanOf{2, 1, 3}},
		{[]float64{4, 1, 2, 3}, spanOf{2.5, 1, 4}},
		{nil, spanOf{}},
	} {
		if got := summary(row.values); got != row.want {
			t.Errorf("summary of %v is %v, want %v", row.values, got, row.want)
		}
	}
}

// A bound is met at most or at least, and missed otherwise, never the reverse.
func TestVerdict(t *testing.T) {
	most, least := target{atMost: true, format: "%.2fx"}, target{format: "%.2fx"}
	for _, row := range []struct {
		of       target
		measured float64
		want     string
	}{
		{most, 1.2, "met"},
		{most, 1.3, "met"},
		{most, 1.31, "**missed**"},
		{least, 1.4, "met"},
		{least, 1.3, "met"},
		{least, 1.29, "**missed**"},
	} {
		if got := row.of.verdict(row.measured, 1.3); got != row.want {
			t.Errorf("at most %t: %v of 1.3 is %s, want %s", row.of.atMost, row.measured, got, row.want)
		}
	}
	if most.bound(1.3) != "<= 1.30x" || least.bound(1.3) != ">= 1.30x" || least.bound(0) != "" || least.verdict(1, 0) != "" {
		t.Error("a bound reads wrong")
	}
}

func TestReportTables(t *testing.T) {
	m := measured()
	for _, want := range []string{
		"| CPU of extauthz per Check, against the no-op | ", "| >= 0.85x | met |",
	} {
		if !strings.Contains(m.targets(), want) {
			t.Errorf("no %q in\n%s", want, m.targets())
		}
	}
	for _, want := range []string{
		"| arm rpc | 4000 (3000–5000) | 1.00 | 0.50 |", "| at 1000/s: p50 us |", "| 400 (300–500) | 800 (600–1000) |",
	} {
		if !strings.Contains(m.figures(), want) {
			t.Errorf("no %q in\n%s", want, m.figures())
		}
	}
	if strings.Contains(m.machine(), "busy machine") {
		t.Error("nobody else used it")
	}
	for name, of := range m.rounds[0] {
		of.full.usage.others, of.half.rate = 1, 900
		m.rounds[0][name], m.rounds[1][name] = of, of
	}
	if !strings.Contains(m.machine(), "busy machine") {
		t.Error("others used a whole core, and nothing is said")
	}
	if !strings.Contains(m.figures(), "at 900/s only") {
		t.Error("the rate was not held, and nothing is said")
	}
}

func TestSumOf(t *testing.T) {
	const text = "# HELP arbiter_decisions_total x\narbiter_decisions_total{outcome=\"allow\",reason=\"\"} 1e+06\n" +
		"arbiter_decisions_total{outcome=\"deny\",reason=\"scope\"} 2\narbiter_decisions_total{outcome=\"deny\",reason=\"limit\"} 3\n" +
		"arbiter_streams_live 7\narbiter_streams_live_more 9\n"
	for _, row := range []struct {
		name, label string
		want        int
	}{
		{"arbiter_decisions_total", `outcome="deny"`, 5},
		{"arbiter_decisions_total", `outcome="error"`, 0},
		{"arbiter_streams_live", "", 7},
	} {
		if got, err := sumOf(text, row.name, row.label); err != nil || got != row.want {
			t.Errorf("%s %s: %d, %v; want %d", row.name, row.label, got, err, row.want)
		}
	}
	if _, err := sumOf(text, "arbiter_decisions", ""); err == nil {
		t.Error("a metric that is not there counts as nothing")
	}
}

func TestEnvoyVersion(t *testing.T) {
	if got := envoyVersion("\n/a/path/envoy  version: abc/1.40.0/Clean/RELEASE/BoringSSL\n\n"); got != "1.40.0" {
		t.Error(got)
	}
	if got := envoyVersion("/a/path"); got != "unknown" {
		t.Error(got)
	}
}
