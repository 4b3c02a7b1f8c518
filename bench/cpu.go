package main

import (
	"fmt"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/child"
)

// reading is the CPU of some processes and the machine at one moment.
type reading struct {
	at      time.Time
	part    map[string]time.Duration
	machine child.Machine
}

// read takes the CPU of parts, each one a process.
func read(parts map[string]int) (reading, error) {
	r := reading{at: time.Now(), part: make(map[string]time.Duration, len(parts))}
	for name, pid := range parts {
		used, err := child.CPU(pid)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.part[name] = used
	}
	var err error
	r.machine, err = child.ReadMachine()
	return r, err
}

// usage is what was used between two readings, in processors: 1 is one core
// kept busy all the time.
type usage struct {
	part   map[string]float64
	others float64 // by everything that is not a part
	idle   float64
}

func between(a, b reading) usage {
	wall := b.at.Sub(a.at).Seconds()
	u := usage{part: make(map[string]float64, len(a.part)), idle: (b.machine.Idle - a.machine.Idle).Seconds() / wall}
	known := 0.0
	for name := range a.part {
		u.part[name] = (b.part[name] - a.part[name]).Seconds() / wall
		known += u.part[name]
	}
	u.others = max(0, (b.machine.Busy-a.machine.Busy).Seconds()/wall-known)
	return u
}
