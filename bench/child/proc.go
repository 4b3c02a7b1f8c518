package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of utime and stime in /proc (USER_HZ, 100 on every
// architecture that Linux runs Go on).
const tick = 10 * time.Millisecond

// ErrGone says that a process has ended.
var ErrGone = errors.New("the process is gone")

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// CPU is what a process has used so far: utime + stime of all of its threads,
// also of those that ended (/proc/pid/stat, fields 14 and 15). ErrGone: it has
// ended itself.
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrGone, err)
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

// Machine is what all processors have spent so far.
type Machine struct{ Busy, Idle time.Duration }

// ReadMachine reads /proc/stat.
func ReadMachine() (Machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Machine{}, err
	}
	return parseMachine(string(text))
}

// parseMachine reads the first line: user nice system idle iowait irq softirq
// steal, then guest times that user holds already.
func parseMachine(text string) (m Machine, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return Machine{}, fmt.Errorf("reading /proc/stat: %q", line)
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Machine{}, fmt.Errorf("reading /proc/stat: %w", err)
		}
		if i == 3 || i == 4 { // idle, iowait
			m.Idle += time.Duration(n) * tick
		} else {
			m.Busy += time.Duration(n) * tick
		}
	}
	return m, nil
}

// OwnCPU is what this process and its children have used, of the children those
// that have ended.
func OwnCPU() (time.Duration, error) {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			return 0, err
		}
		sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return sum, nil
}

// Memory is a process's resident set in bytes: what it has of the machine's
// memory, its program included, whoever else runs the same one.
func Memory(pid int) (int64, error) {
	text, err := os.ReadFile(proc(pid, "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	return parseRSS(string(text))
}

func parseRSS(text string) (int64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // "Rss:  1234 kB"
		if len(fields) == 3 && fields[0] == "Rss:" && fields[2] == "kB" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("reading smaps_rollup: no Rss in %q", text)
}

// Children are the processes that a process has started.
func Children(pid int) ([]int, error) {
	lists, err := filepath.Glob(proc(pid, "task/*/children"))
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
