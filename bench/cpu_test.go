package main

import (
	"os"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
)

// What this process itself burns is seen, and of the right order.
func TestProcessCPU(t *testing.T) {
	before, err := read(map[string]int{"self": os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	for end := before.part["self"] + 100*time.Millisecond; ; {
		now, err := child.CPU(os.Getpid())
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

func TestBetween(t *testing.T) {
	at := time.Now()
	first := reading{at, map[string]time.Duration{"envoy": time.Second}, child.Machine{Busy: 10 * time.Second, Idle: 10 * time.Second}}
	last := reading{at.Add(2 * time.Second), map[string]time.Duration{"envoy": 3 * time.Second}, child.Machine{Busy: 13 * time.Second, Idle: 11 * time.Second}}
	if u := between(first, last); u.part["envoy"] != 1 || u.others != 0.5 || u.idle != 0.5 {
		t.Errorf("%+v", u)
	}
}
