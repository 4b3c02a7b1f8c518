package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// perClient is the rate of one client: h2load takes whole numbers.
func perClient(rate float64) int { return max(1, int(rate/connections)) }

// pace lets the clients ask at a constant rate, rate requests/s in sum, and
// measures how long each answer took.
//
// With -D h2load would make all clients ask in the same moment, again and again,
// and their waiting for each other would be measured. So the clients are
// started one after the other, and what counts begins when all are there.
func (l load) pace(ctx context.Context, rate int, measure time.Duration, logFile string) (result, error) {
	if err := os.Remove(logFile); err != nil && !errors.Is(err, os.ErrNotExist) { // h2load would append to it
		return result{}, err
	}
	each := perClient(float64(rate))
	apart := spread(time.Second / time.Duration(each))
	warm := connections*apart + 500*time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, 4*(warm+measure)+10*time.Second)
	defer cancel()
	calls := int(math.Ceil(float64(each) * (warm + measure).Seconds()))
	w := &watch{parts: l.parts, begin: warm, end: warm + measure}
	text, err := l.run(ctx, w, l.arguments("-n", strconv.Itoa(calls*connections), "--rps="+strconv.Itoa(each),
		"--rate=1", fmt.Sprintf("--rate-period=%dms", apart.Milliseconds()), "--log-file="+logFile)...)
	if err != nil {
		return result{}, err
	}
	if _, err := parseOutput(text); err != nil {
		return result{}, err
	}
	r, err := parseLog(logFile, warm, measure)
	if err != nil {
		return r, err
	}
	r.usage, err = w.usage()
	return r, err
}

// spread says how long after each other clients must start so that those who
// ask once per period ask at different moments: of the whole milliseconds, which
// is all that h2load takes, the one with the most different moments.
func spread(period time.Duration) time.Duration {
	best, most := time.Duration(0), 0
	for apart := 7 * time.Millisecond; apart <= 17*time.Millisecond; apart += time.Millisecond {
		moments := map[time.Duration]bool{}
		for i := range connections {
			moments[(time.Duration(i)*apart%period)/(250*time.Microsecond)] = true
		}
		if len(moments) > most {
			best, most = apart, len(moments)
		}
	}
	return best
}

// parseLog reads h2load's log (start in us since 1970, status, duration in us):
// what was asked in the time that counts.
func parseLog(file string, warm, measure time.Duration) (result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return result{}, err
	}
	type call struct{ at, took int64 }
	var calls []call
	for line := range strings.Lines(string(text)) {
		var status int
		var c call
		if _, err := fmt.Sscanf(line, "%d\t%d\t%d", &c.at, &status, &c.took); err != nil {
			return result{}, fmt.Errorf("h2load's log: %q: %w", line, err)
		}
		calls = append(calls, c)
	}
	if len(calls) == 0 {
		return result{}, errors.New("h2load's log is empty")
	}
	begin := slices.MinFunc(calls, func(a, b call) int { return int(a.at - b.at) }).at + warm.Microseconds()
	var counted []time.Duration
	for _, c := range calls {
		if c.at >= begin && c.at < begin+measure.Microseconds() {
			counted = append(counted, time.Duration(c.took)*time.Microsecond)
		}
	}
	slices.Sort(counted)
	return result{
		rate: float64(len(counted)) / measure.Seconds(),
		p50:  quantile(counted, 0.50), p99: quantile(counted, 0.99),
	}, nil
}

// quantile is the smallest of a sorted list that a share q of it does not
// exceed; 0 of nothing.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}
