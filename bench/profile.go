package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
	"github.com/arbiter-gateway/arbiter/bench/report"
)

const profileTime = 10 * time.Second

// profile runs the rpc arm once more, profiles its extauthz meanwhile, and
// shows where the time went. Nothing of that run is counted as a figure.
func (m *measurement) profile(ctx context.Context) error {
	var a *arm
	for _, candidate := range m.arms {
		if candidate.name == armRPC {
			a = candidate
		}
	}
	if a == nil {
		return fmt.Errorf("-profile needs arm %s", armRPC)
	}
	file := filepath.Join(m.dir, "extauthz.pprof")
	ended := make(chan error, 1)
	go func() { ended <- a.gateway.saveProfile(ctx, file) }()
	_, err := m.one(ctx, a, profileTime, 0)
	if profileErr := <-ended; err == nil {
		err = profileErr
	}
	if err != nil {
		return fmt.Errorf("profile of extauthz: %w", err)
	}
	text, err := m.top(ctx, file)
	if err != nil {
		return err
	}
	m.say("\n%s", text)
	if m.options.write == "" {
		return nil
	}
	return report.Write(m.options.write, "profile", text)
}

// saveProfile keeps what the profiler on extauthz's admin socket says.
func (g *arbiter) saveProfile(ctx context.Context, file string) error {
	path := fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", profileTime.Seconds())
	text, err := fetch(ctx, filepath.Join(g.dir, "run", "extauthz-admin.sock"), path)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// top is a profile as two lists: where the processor was, and what it was there
// for.
func (m *measurement) top(ctx context.Context, file string) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "CPU of extauthz in arm `%s`, at saturation.\n\n", armRPC)
	for _, list := range []struct{ order, what string }{
		{"-flat", "what the functions themselves used"}, {"-cum", "what they used with all that they call"},
	} {
		text, err := child.Output(child.Command(ctx, "go", "tool", "pprof", "-top", "-nodecount=20", list.order, file))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "By %s:\n\n```\n%s```\n\n", list.what, trimmed(string(text)))
	}
	return out.String(), nil
}

// trimmed leaves out where the binary lay and when.
func trimmed(text string) string {
	if at := strings.Index(text, "Duration:"); at >= 0 {
		text = text[at:]
	}
	return strings.TrimRight(text, "\n") + "\n"
}
