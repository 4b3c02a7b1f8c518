package main

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const stat = "1234 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 99 99 20 0 1 0\n"
	if used, err := parseStat([]byte(stat)); err != nil || used != 1750*time.Millisecond {
		t.Errorf("%v, %v", used, err)
	}
	for _, text := range []string{"", "1234 (x", "1234 (x) S 1 2", "1 (x) S 1 2 3 4 5 6 7 8 9 10 many 25 9"} {
		if used, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, used)
		}
	}
}

func TestParseMachine(t *testing.T) {
	const text = "cpu  100 10 50 1000 20 5 15 2 77 7\ncpu0 1 2 3\n"
	m, err := parseMachine(text)
	if err != nil || m.busy != 1820*time.Millisecond || m.idle != 10200*time.Millisecond {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := parseMachine("intr 1 2 3"); err == nil {
		t.Error("that is no line of processors")
	}
}

// What this process itself burns is seen, and of the right order.
func TestProcessCPU(t *testing.T) {
	before, err := read(map[string]int{"self": os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	for end := before.part["self"] + 100*time.Millisecond; ; {
		now, err := processCPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now >= end {
			break
		}
	}
	after, err := read(map[string]int{"self": os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	u := between(before, after)
	if u.part["self"] <= 0 || u.part["self"] > 64 || u.idle < 0 || u.others < 0 {
		t.Errorf("%+v", u)
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
	of, err := children(os.Getpid())
	if err != nil || len(of) != 1 || of[0] != cmd.Process.Pid {
		t.Errorf("children are %v, %v; want %d", of, err, cmd.Process.Pid)
	}
}

func TestBetween(t *testing.T) {
	at := time.Now()
	first := reading{at, map[string]time.Duration{"envoy": time.Second}, machineCPU{busy: 10 * time.Second, idle: 10 * time.Second}}
	last := reading{at.Add(2 * time.Second), map[string]time.Duration{"envoy": 3 * time.Second}, machineCPU{busy: 13 * time.Second, idle: 11 * time.Second}}
	if u := between(first, last); u.part["envoy"] != 1 || u.others != 0.5 || u.idle != 0.5 {
		t.Errorf("%+v", u)
	}
}
