package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
)

// The files hold what h2load 1.52 printed, to the byte.
func captured(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParseOutput(t *testing.T) {
	saturated := captured(t, "saturated.txt")
	change := func(from, to string) string {
		if !strings.Contains(saturated, from) {
			t.Fatalf("the captured output has no %q", from)
		}
		return strings.Replace(saturated, from, to, 1)
	}
	for _, row := range []struct {
		name, text string
		rate       float64 // 0: an error is wanted
	}{
		{"saturated", saturated, 41184},
		{"paced", captured(t, "paced.txt"), 7952.16},
		{"a refusal among the statuses", change("82368 2xx, 0 3xx, 0 4xx, 0 5xx", "82367 2xx, 0 3xx, 1 4xx, 0 5xx"), 0},
		{"a fault", change("0 4xx, 0 5xx", "0 4xx, 1 5xx"), 0},
		{"a redirect", change("0 3xx", "1 3xx"), 0},
		{"not all succeeded", change("82368 succeeded, 0 failed", "82367 succeeded, 1 failed"), 0},
		{"an error of the connection", change("0 errored", "2 errored"), 0},
		{"a time-out", change("0 timeout", "2 timeout"), 0},
		{"nothing done", change("82368 done, 82368 succeeded", "0 done, 0 succeeded"), 0},
		{"no summary", "starting benchmark...\n", 0},
		{"nothing", "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := parseOutput(row.text)
			if (err != nil) != (row.rate == 0) || r.rate != row.rate {
				t.Errorf("%v requests/s, %v; want %v", r.rate, err, row.rate)
			}
		})
	}
}

// The lines that the readings of CPU hang on are what h2load really prints.
func TestWatchKnowsWhenH2loadCounts(t *testing.T) {
	w := &watch{parts: map[string]int{"bench": os.Getpid()}}
	text, err := w.read(strings.NewReader(captured(t, "saturated.txt")), os.Getpid())
	if err != nil || text != captured(t, "saturated.txt") {
		t.Fatalf("read %d bytes, %v", len(text), err)
	}
	if _, err := w.usage(); err != nil {
		t.Error(err)
	}
	silent := &watch{}
	if _, err := silent.read(strings.NewReader("finished\n"), os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.usage(); err == nil {
		t.Error("usage of a run that was never measured")
	}
}

func TestWatchMissesAProcessThatIsGone(t *testing.T) {
	w := &watch{parts: map[string]int{"authz": 1 << 30}}
	if _, err := w.read(strings.NewReader(captured(t, "saturated.txt")), os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.usage(); !errors.Is(err, child.ErrGone) {
		t.Errorf("usage without the process: %v", err)
	}
}

func TestH2loadMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := run(t.Context(), []string{"-quick"}, nil)
	if !errors.Is(err, errNoH2load) || !strings.Contains(err.Error(), "apt-get install nghttp2-client") {
		t.Errorf("without h2load: %v", err)
	}
}

// No two clients may ask in the same moment as long as there are moments enough.
func TestSpread(t *testing.T) {
	for _, each := range []int{160, 143, 100, 77, 76, 71, 53, 50, 27, 20} {
		period := time.Second / time.Duration(each)
		apart := spread(period)
		moments := map[time.Duration]int{}
		for i := range connections {
			moments[(time.Duration(i)*apart%period)/time.Millisecond]++
		}
		most := 0
		for _, n := range moments {
			most = max(most, n)
		}
		even := connections/int(period/time.Millisecond) + 1
		if most > 2*even {
			t.Errorf("period %v, %v apart: %d clients ask within 1 ms, evenly it were %d", period, apart, most, even)
		}
	}
}

func TestParseLog(t *testing.T) {
	file := t.TempDir() + "/log"
	// The first call is at 1 s; what counts begins 1 s later and takes 2 s.
	lines := "1000000\t200\t9000\n" + "1999999\t200\t9000\n" +
		"2000000\t200\t100\n" + "2500000\t200\t300\n" + "3999999\t200\t200\n" +
		"4000000\t200\t9000\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := parseLog(file, time.Second, 2*time.Second)
	if err != nil || r.rate != 1.5 || r.p50 != 200*time.Microsecond || r.p99 != 300*time.Microsecond {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{"", "nonsense\n", "1\t200\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := parseLog(file, 0, time.Second); err == nil {
			t.Errorf("%q is a log", text)
		}
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, row := range []struct {
		of   []time.Duration
		q    float64
		want time.Duration
	}{
		{hundred, 0.50, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred[:1], 0.99, 1}, {nil, 0.5, 0},
	} {
		if got := quantile(row.of, row.q); got != row.want {
			t.Errorf("%v of %d values is %d, want %d", row.q, len(row.of), got, row.want)
		}
	}
}
