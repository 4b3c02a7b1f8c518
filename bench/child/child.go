// Package child runs the programs of a benchmark as processes of their own, and
// reads what the kernel says of them: CPU and memory (Linux, proc(5)).
//
// Place in the flow: it belongs to none. It trusts the programs that it is told
// to start, and ends them by their ids and no others.
package child

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

// Process is a child that runs in the background.
type Process struct {
	Name  string
	cmd   *exec.Cmd
	log   string // file with what it wrote to standard error
	ended chan struct{}
	err   error // why it ended; read after ended
}

// stopAfter is how long a child may take to end by itself.
const stopAfter = 15 * time.Second

// Command makes a command whose environment is ours without Arbiter's settings:
// each role is given its own.
func Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // paths of our own builds, or chosen by who runs it
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ARBITER_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	return cmd
}

// Start runs cmd, its standard error in dir. With wantLine it waits for the
// first line on standard output and returns it.
func Start(cmd *exec.Cmd, name, dir string, wantLine bool) (*Process, string, error) {
	p := &Process{Name: name, cmd: cmd, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
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
func (p *Process) died() error {
	text, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	why := p.err
	if why == nil {
		why = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended (%w); its last words: %s", p.Name, why, lines[len(lines)-1])
}

// Running is an error when the child has ended.
func (p *Process) Running() error {
	select {
	case <-p.ended:
		return p.died()
	default:
		return nil
	}
}

// Stop asks the child to end, then makes it, and waits until it has.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-p.ended:
	case <-time.After(stopAfter):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output runs a program to its end and returns what it printed.
func Output(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// Poll asks every few milliseconds until there is no error, the child has ended
// or time is up.
func Poll(ctx context.Context, p *Process, every, within time.Duration, ask func(context.Context) error) error {
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
			return fmt.Errorf("%s was not ready after %v: %w", p.Name, within, err)
		case <-time.After(every):
		}
	}
}
