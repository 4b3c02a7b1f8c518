package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// RunnerConfig says which Envoy to run and how.
type RunnerConfig struct {
	Path          string        // the binary; Find knows it
	BootstrapFile string        // what Bootstrap made, written by the caller
	AdminSocket   string        // the one in the bootstrap
	Concurrency   int           // worker threads; 0: one per CPU
	StopAfter     time.Duration // grace between SIGTERM and SIGKILL; default 5 s
	Log           *slog.Logger  // required; gets Envoy's own lines too
}

// Runner keeps one Envoy running.
type Runner struct {
	config RunnerConfig

	mu  sync.Mutex // guards pid
	pid int        // of the running child, 0 without one
}

// The pause before a crashed Envoy is started again. It starts over once an
// Envoy has lived for longer than the last pause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	lived      = 10 * time.Second
)

// NewRunner checks the configuration.
func NewRunner(c RunnerConfig) (*Runner, error) {
	if c.Path == "" || c.BootstrapFile == "" || c.AdminSocket == "" || c.Log == nil {
		return nil, errors.New("running envoy: path, bootstrap file, admin socket and logger are needed")
	}
	if c.StopAfter <= 0 {
		c.StopAfter = 5 * time.Second
	}
	return &Runner{config: c}, nil
}

// Run keeps Envoy running until ctx ends, and returns nil after it is gone. An
// Envoy that cannot be started at all is an error.
func (r *Runner) Run(ctx context.Context) error {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		started, err := r.once(ctx)
		if !started && ctx.Err() == nil {
			return fmt.Errorf("starting envoy: %w", err)
		}
		if time.Since(began) > lived {
			pause = firstPause
		}
		if ctx.Err() == nil {
			r.config.Log.Error("envoy ended by itself", "reason", err, "restart_in", pause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// Pid is the process id of the running Envoy, 0 when there is none.
func (r *Runner) Pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

// once runs one Envoy to its end.
func (r *Runner) once(ctx context.Context) (started bool, _ error) {
	// A socket that a killed Envoy has left behind would stop the next one.
	if err := os.Remove(r.config.AdminSocket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	lines := newLineLog(r.config.Log)
	defer lines.Close()
	cmd := exec.CommandContext(ctx, r.config.Path, r.arguments()...)
	cmd.Env = []string{} // nothing of ours is Envoy's to know
	cmd.Stdout, cmd.Stderr = lines, lines
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = r.config.StopAfter // then SIGKILL of this process
	err := startAndWait(cmd, func(pid int) {
		started = true
		r.setPid(pid)
		r.config.Log.Info("envoy started", "pid", pid)
	})
	r.setPid(0)
	return started, err
}

func (r *Runner) setPid(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pid = pid
}

func (r *Runner) arguments() []string {
	args := []string{
		"--config-path", r.config.BootstrapFile,
		"--disable-hot-restart", // no shared memory: several Envoys on a machine never meet
		"--log-level", "warning",
		"--log-format", logFormat,
	}
	if r.config.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(r.config.Concurrency))
	}
	return args
}

// Ready waits until Envoy serves with its configuration loaded.
func (r *Runner) Ready(ctx context.Context) error {
	admin := AdminClient(r.config.AdminSocket)
	defer admin.CloseIdleConnections()
	var last error
	for {
		if last = askReady(ctx, admin); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for envoy (%w): %w", last, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func askReady(ctx context.Context, admin *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy/ready", nil)
	if err != nil {
		return err
	}
	answer, err := admin.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	state, err := io.ReadAll(io.LimitReader(answer.Body, 256))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("envoy says %q", state)
	}
	return err
}

// AdminClient speaks HTTP to Envoy's admin interface, whatever host the URL names.
func AdminClient(socket string) *http.Client {
	return &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		},
	}
}
