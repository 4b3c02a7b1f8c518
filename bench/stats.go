package main

import (
	"fmt"
	"slices"
)

// spanOf is what some rounds said of one figure.
type spanOf struct{ median, least, most float64 }

// summary is the zero value of nothing.
func summary(values []float64) spanOf {
	if len(values) == 0 {
		return spanOf{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	s := spanOf{median: sorted[middle], least: sorted[0], most: sorted[len(sorted)-1]}
	if len(sorted)%2 == 0 {
		s.median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return s
}

// text writes "median (least–most)", or the one figure that there is.
func (s spanOf) text(format string) string {
	if s.least == s.most {
		return fmt.Sprintf(format, s.median)
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", s.median, s.least, s.most)
}

// figure reads one number of an arm's runs in a round.
type figure func(both) float64

func rate(b both) float64 { return b.full.rate }

// cpuOf is the CPU of one part per request, in microseconds.
func cpuOf(part string) figure {
	return func(b both) float64 { return b.full.usage.part[part] / b.full.rate * 1e6 }
}

// cpu is that of all parts, the client's too.
func cpu(b both) float64 {
	sum := 0.0
	for part := range b.full.usage.part {
		sum += cpuOf(part)(b)
	}
	return sum
}

func p50(b both) float64 { return float64(b.half.p50.Microseconds()) }
func p99(b both) float64 { return float64(b.half.p99.Microseconds()) }

// over is a figure of one arm in every round.
func (m *measurement) over(arm string, of figure) []float64 {
	var out []float64
	for _, round := range m.rounds {
		if b, measured := round[arm]; measured {
			out = append(out, of(b))
		}
	}
	return out
}

// pairs are the means of a figure over two rounds, one forwards and one
// backwards: what changes steadily on a machine during both is the same for
// every arm (ABBA).
func (m *measurement) pairs(arm string, of figure) []float64 {
	all := m.over(arm, of)
	var out []float64
	for i := 0; i+1 < len(all); i += 2 {
		out = append(out, (all[i]+all[i+1])/2)
	}
	return out
}

// ratios are a figure of arm over the same of base, pair by pair.
func (m *measurement) ratios(arm, base string, of figure) []float64 {
	a, b := m.pairs(arm, of), m.pairs(base, of)
	var out []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 { // a part that this arm does not have
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

// differences are a figure of arm less the same of base, pair by pair.
func (m *measurement) differences(arm, base string, of figure) []float64 {
	a, b := m.pairs(arm, of), m.pairs(base, of)
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, a[i]-b[i])
	}
	return out
}
