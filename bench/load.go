package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
)

// connections is how many clients ask at a time, each one request at a time,
// each on a TLS connection of its own.
const connections = 64

// clientName is the part of a reading that is h2load itself.
const clientName = "client"

// errNoH2load says how to get the client.
var errNoH2load = errors.New("h2load is missing: on Debian and Ubuntu `apt-get install nghttp2-client`, on Fedora `dnf install nghttp2`")

// findH2load returns the path of the client.
func findH2load() (string, error) {
	path, err := exec.LookPath("h2load")
	if err != nil {
		return "", errNoH2load
	}
	return path, nil
}

// load is one run of h2load.
type load struct {
	h2load   string
	url      string
	headers  []string // "name: value"
	bodyFile string
	parts    map[string]int // the processes whose CPU is wanted
}

// result is what one run said.
type result struct {
	rate     float64       // requests/s
	p50, p99 time.Duration // only at half load
	usage    usage         // while requests were counted
}

// arguments are common to all runs. They hold the token, which any process of
// this machine may read: it is good for this run only, on a gateway that nobody
// else reaches.
func (l load) arguments(more ...string) []string {
	args := append([]string{"-c", strconv.Itoa(connections), "-m", "1", "-t", "1", "-d", l.bodyFile}, more...)
	for _, header := range l.headers {
		args = append(args, "-H", header)
	}
	return append(args, l.url)
}

// saturate lets the clients ask as fast as they are answered. Nothing counts
// during the first second.
func (l load) saturate(ctx context.Context, measure time.Duration) (result, error) {
	w := &watch{parts: l.parts}
	text, err := l.run(ctx, w, l.arguments("-D", seconds(measure), "--warm-up-time=1s")...)
	if err != nil {
		return result{}, err
	}
	r, err := parseOutput(text)
	if err != nil {
		return r, err
	}
	r.usage, err = w.usage()
	return r, err
}

// seconds is how h2load reads a time: in whole seconds.
func seconds(d time.Duration) string {
	return strconv.Itoa(int(d.Round(time.Second)/time.Second)) + "s"
}

// run runs h2load to its end and returns what it printed.
func (l load) run(ctx context.Context, w *watch, args ...string) (string, error) {
	cmd := child.Command(ctx, l.h2load, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting h2load: %w", err)
	}
	text, err := w.read(out, cmd.Process.Pid)
	if waitErr := cmd.Wait(); waitErr != nil {
		return "", fmt.Errorf("h2load: %w: %s", waitErr, bytes.TrimSpace(errs.Bytes()))
	}
	return text, err
}

// watch reads the CPU of some processes when counting begins and when it ends.
type watch struct {
	parts map[string]int
	// When counting begins and ends, after the start. 0: when h2load says so.
	begin, end time.Duration

	first, last reading
	failed      error
}

// What h2load says, at once, of a run with -D.
const (
	beginLine = "Main benchmark duration is started"
	endLine   = "Main benchmark duration is over"
)

// read reads what h2load prints until it ends.
func (w *watch) read(out io.Reader, pid int) (string, error) {
	parts := map[string]int{clientName: pid}
	for name, id := range w.parts {
		parts[name] = id
	}
	stop := w.clock(parts)
	defer stop()
	var text strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		switch {
		case strings.HasPrefix(lines.Text(), beginLine):
			w.take(&w.first, parts)
		case strings.HasPrefix(lines.Text(), endLine):
			w.take(&w.last, parts)
		}
	}
	return text.String(), lines.Err()
}

// clock takes the readings by time. stop returns when it takes no more.
func (w *watch) clock(parts map[string]int) (stop func()) {
	if w.end == 0 {
		return func() {}
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		for _, at := range []struct {
			after time.Duration
			into  *reading
		}{{w.begin, &w.first}, {w.end, &w.last}} {
			select {
			case <-time.After(time.Until(began.Add(at.after))):
				w.take(at.into, parts)
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped); <-done }
}

func (w *watch) take(into *reading, parts map[string]int) {
	var err error
	*into, err = read(parts)
	w.failed = errors.Join(w.failed, err)
}

// usage is what was used between the two readings.
func (w *watch) usage() (usage, error) {
	switch {
	case w.failed != nil:
		return usage{}, w.failed
	case w.first.at.IsZero() || w.last.at.IsZero():
		return usage{}, errors.New("h2load ended before all was counted")
	}
	return between(w.first, w.last), nil
}

// What h2load prints at the end.
var (
	finishedLine = regexp.MustCompile(`(?m)^finished in [^,]+, ([0-9.]+) req/s`)
	requestsLine = regexp.MustCompile(`(?m)^requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout`)
	statusLine   = regexp.MustCompile(`(?m)^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx`)
)

// parseOutput reads the summary. Anything but 2xx is an error: a figure of
// refusals is no figure.
func parseOutput(text string) (result, error) {
	finished, requests := finishedLine.FindStringSubmatch(text), requestsLine.FindStringSubmatch(text)
	status := statusLine.FindStringSubmatch(text)
	if finished == nil || requests == nil || status == nil {
		return result{}, fmt.Errorf("h2load printed no summary: %s", strings.TrimSpace(text))
	}
	rate, err := strconv.ParseFloat(finished[1], 64)
	if err != nil {
		return result{}, err
	}
	n := numbers(requests[1:])
	s := numbers(status[1:])
	if n[0] == 0 || n[1] != n[0] || n[2]+n[3]+n[4] > 0 || s[1]+s[2]+s[3] > 0 {
		return result{}, fmt.Errorf("not every request was answered with 2xx: %s; %s", requests[0], status[0])
	}
	return result{rate: rate}, nil
}

// numbers reads what a regular expression has already found to be digits.
func numbers(texts []string) []int {
	out := make([]int, len(texts))
	for i, text := range texts {
		out[i], _ = strconv.Atoi(text) // too many digits read as the largest number
	}
	return out
}
