package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of utime and stime in /proc (USER_HZ, 100 on every
// architecture that Linux runs Go on).
const tick = 10 * time.Millisecond

// errGone says that a process has ended.
var errGone = errors.New("the process is gone")

// processCPU is what a process has used so far: utime + stime of all of its
// threads, also of those that ended (proc(5), /proc/pid/stat fields 14 and 15).
func processCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errGone, err)
	}
	return parseStat(text)
}

// parseStat reads behind the command's name, which may hold anything.
func parseStat(text []byte) (time.Duration, error) {
	_, rest, found := bytes.Cut(text[max(0, bytes.LastIndexByte(text, ')')):], []byte(") "))
	fields := strings.Fields(string(rest)) // from field 3 on
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("reading /proc/pid/stat: %q", text)
	}
	var sum int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading /proc/pid/stat: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

// machineCPU is what all processors have spent so far, working and idle.
type machineCPU struct{ busy, idle time.Duration }

func readMachineCPU() (machineCPU, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineCPU{}, err
	}
	return parseMachine(string(text))
}

// parseMachine reads the first line: user nice system idle iowait irq softirq
// steal, then guest times that user holds already (proc(5)).
func parseMachine(text string) (machineCPU, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return machineCPU{}, fmt.Errorf("reading /proc/stat: %q", line)
	}
	var m machineCPU
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return machineCPU{}, fmt.Errorf("reading /proc/stat: %w", err)
		}
		if i == 3 || i == 4 { // idle, iowait
			m.idle += time.Duration(n) * tick
		} else {
			m.busy += time.Duration(n) * tick
		}
	}
	return m, nil
}

// children are the processes that a process has started.
func children(pid int) ([]int, error) {
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that ended meanwhile
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", list, err)
			}
			out = append(out, child)
		}
	}
	return out, nil
}

// reading is the CPU of some processes and the machine at one moment.
type reading struct {
	at      time.Time
	part    map[string]time.Duration
	machine machineCPU
}

// read takes the CPU of parts, each one a process.
func read(parts map[string]int) (reading, error) {
	r := reading{at: time.Now(), part: make(map[string]time.Duration, len(parts))}
	for name, pid := range parts {
		used, err := processCPU(pid)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.part[name] = used
	}
	var err error
	r.machine, err = readMachineCPU()
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
	u := usage{part: make(map[string]float64, len(a.part)), idle: (b.machine.idle - a.machine.idle).Seconds() / wall}
	known := 0.0
	for name := range a.part {
		u.part[name] = (b.part[name] - a.part[name]).Seconds() / wall
		known += u.part[name]
	}
	u.others = max(0, (b.machine.busy-a.machine.busy).Seconds()/wall-known)
	return u
}
