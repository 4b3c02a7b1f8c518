package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a child of the benchmark. It is ended by its own id.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string // file with what it wrote to standard error
	ended chan struct{}
	err   error // why it ended; read after ended
}

// stopAfter is how long a child may take to end by itself.
const stopAfter = 15 * time.Second

// command is the one place that starts programs: those of this tree, Envoy and
// h2load.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // paths of our own builds, or chosen by who runs it
	cmd.Env = environment()
	return cmd
}

// environment is ours without Arbiter's settings: each role gets its own.
func environment() []string {
	var out []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ARBITER_") {
			out = append(out, variable)
		}
	}
	return out
}

// start runs cmd in the background, its standard error in dir. With wantLine it
// waits for the first line on standard output and returns it.
func start(cmd *exec.Cmd, name, dir string, wantLine bool) (*process, string, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, "", err
	}
	defer log.Close() // the child has its own
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("starting %s: %w", name, err)
	}
	lines := bufio.NewReader(out)
	line, readErr := "", error(nil)
	if wantLine {
		line, readErr = lines.ReadString('\n')
	}
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		p.err = cmd.Wait()
		close(p.ended)
	}()
	if readErr != nil {
		<-p.ended
		return nil, "", p.died()
	}
	return p, strings.TrimSpace(line), nil
}

// died says why a child that should run does not.
func (p *process) died() error {
	text, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return fmt.Errorf("%s ended (%w); its last words: %s", p.name, orEnded(p.err), lines[len(lines)-1])
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// running reports an error when the child has ended.
func (p *process) running() error {
	select {
	case <-p.ended:
		return p.died()
	default:
		return nil
	}
}

// stop asks the child to end, then makes it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-p.ended:
	case <-time.After(stopAfter):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// output runs a program to its end and returns what it printed.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// poll asks until there is no error, the child has ended or time is up.
func poll(ctx context.Context, p *process, within time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.died()
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready after %v: %w", p.name, within, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
