package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// program is a client in a process of its own. It prints its steps and waits
// for a line when it is ready to be cut.
func program(command []string) func(context.Context, Env, func(Step)) error {
	return func(ctx context.Context, env Env, report func(Step)) error {
		process := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the commands of All
		process.Env = environment(env)
		process.WaitDelay = 5 * time.Second
		var said bytes.Buffer
		process.Stderr = &said
		in, err := process.StdinPipe()
		if err != nil {
			return err
		}
		out, err := process.StdoutPipe()
		if err != nil {
			return err
		}
		if err := process.Start(); err != nil {
			return err
		}
		heard := hear(ctx, out, in, env, report)
		if heard != nil {
			_ = process.Process.Kill()
		}
		if err := errors.Join(heard, process.Wait()); err != nil {
			return fmt.Errorf("%w; it said: %s", err, tail(said.Bytes()))
		}
		return nil
	}
}

func hear(ctx context.Context, out io.Reader, in io.Writer, env Env, report func(Step)) error {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var step Step
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			return fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		report(step)
		if step.Name != "ready-to-cut" {
			continue
		}
		if err := env.Cut(ctx); err != nil {
			return fmt.Errorf("cutting: %w", err)
		}
		if _, err := io.WriteString(in, "cut\n"); err != nil {
			return err
		}
	}
	return lines.Err()
}

// environment is all that the process gets: nothing of the caller's own that
// it does not need.
func environment(env Env) []string {
	vars := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "ARBITER_URL=" + env.URL, "ARBITER_ERA=" + string(env.Era),
		"ARBITER_CA=" + env.CA, "ARBITER_HEADER_FILE=" + env.HeaderFile, "ARBITER_DENIED_TOOL=" + env.DeniedTool,
	}
	if env.CA != "" {
		vars = append(vars, "NODE_EXTRA_CA_CERTS="+env.CA)
	}
	if env.Cut != nil {
		vars = append(vars, "ARBITER_CUT=1")
	}
	return vars
}

func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }
