package child

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	// The name of a command may hold anything: here what looks like the fields.
	const line = "4711 (a) S 1 2) R 1 2 3 4 5 6 7 8 9 10 120 34 5 6 20 0 1 0 99 0 0"
	got, err := parseStat([]byte(line))
	if err != nil || got != 1540*time.Millisecond {
		t.Errorf("%v, %v, want 1.54s", got, err)
	}
	for _, text := range []string{"", "1 (a", "1 (a) R 1 2", "1 (a) R 1 2 3 4 5 6 7 8 9 10 x 34"} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestParseRSS(t *testing.T) {
	const text = "00400000-7fff [rollup]\nRss:   1234 kB\nPss:  999 kB\nPss_Anon:  99 kB\n"
	if got, err := parseRSS(text); err != nil || got != 1234<<10 {
		t.Errorf("%d, %v, want %d", got, err, 1234<<10)
	}
	for _, text := range []string{"", "Pss: 1 kB\n", "Rss: 1 MB\n", "Rss: x kB\n"} {
		if got, err := parseRSS(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestParseMachine(t *testing.T) {
	const text = "cpu  100 20 3000 999999 888888 4 50 600 77777 66666\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	if got, err := parseMachine(text); err != nil || got != (Machine{Busy: 37740 * time.Millisecond, Idle: 18888870 * time.Millisecond}) {
		t.Errorf("%v, %v, want 37.74s and 18888.87s", got, err)
	}
	for _, text := range []string{"", "cpu 1 2 3\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4 5 6 7 x\n"} {
		if got, err := parseMachine(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// What a child has used is known after its end too.
func TestOwnCPU(t *testing.T) {
	before, err := OwnCPU()
	if err != nil {
		t.Fatal(err)
	}
	const loop = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
	if _, err := Output(Command(t.Context(), "sh", "-c", loop)); err != nil {
		t.Fatal(err)
	}
	if after, err := OwnCPU(); err != nil || after-before < 10*time.Millisecond {
		t.Errorf("counting to 200,000 took %v, %v", after-before, err)
	}
}

func TestFirstLine(t *testing.T) {
	p, line, err := Start(Command(t.Context(), "echo", "here"), "child", t.TempDir(), true)
	if err != nil || line != "here" {
		t.Fatalf("%q, %v", line, err)
	}
	p.Stop()
	if _, line, err := Start(Command(t.Context(), "true"), "child", t.TempDir(), true); err == nil {
		t.Errorf("a child that says nothing said %q", line)
	}
}

// A child is seen in /proc, and ends when it is told to.
func TestProcess(t *testing.T) {
	p, _, err := Start(Command(t.Context(), "sleep", "60"), "child", t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Running(); err != nil {
		t.Errorf("it runs: %v", err)
	}
	if memory, err := Memory(p.PID()); err != nil || memory < 4<<10 {
		t.Errorf("memory %d, %v", memory, err)
	}
	if _, err := CPU(p.PID()); err != nil {
		t.Errorf("CPU: %v", err)
	}
	if of, err := Children(os.Getpid()); err != nil || len(of) != 1 || of[0] != p.PID() {
		t.Errorf("children %v, %v, want %d", of, err, p.PID())
	}
	p.Stop()
	if err := p.Running(); err == nil {
		t.Error("it runs after it was stopped")
	}
}

// Whoever waits for a child that has died hears its last words.
func TestPollOfTheDead(t *testing.T) {
	p, _, err := Start(Command(t.Context(), "sh", "-c", "echo one >&2; echo two >&2; exit 3"), "child", t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	err = Poll(t.Context(), p, time.Millisecond, time.Minute, func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.HasSuffix(err.Error(), "two") {
		t.Errorf("%v", err)
	}
}

func TestCommandHasNoSettings(t *testing.T) {
	t.Setenv("ARBITER_LISTEN", "127.0.0.1:1")
	t.Setenv("OTHER", "stays")
	env := strings.Join(Command(t.Context(), "true").Env, "\n") + "\n"
	if strings.Contains(env, "ARBITER_") || !strings.Contains(env, "OTHER=stays\n") {
		t.Errorf("environment of a child: %s", env)
	}
}

func TestChildren(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	of, err := Children(os.Getpid())
	if err != nil || len(of) != 1 || of[0] != cmd.Process.Pid {
		t.Errorf("children are %v, %v; want %d", of, err, cmd.Process.Pid)
	}
}
