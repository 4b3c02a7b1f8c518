package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine says on what and of what figures were measured, as a markdown table:
// processors, memory, kernel, Go, the commit, the day, and the rows given. Run
// it from the repository; what cannot be found out is "unknown".
func Machine(ctx context.Context, now time.Time, more ...[2]string) string {
	rows := [][]string{
		{"measured", now.UTC().Format("2006-01-02 15:04") + " UTC"},
		{"commit", commit(ctx)},
		{"machine", fmt.Sprintf("%d cores, %s, %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), memory(field("/proc/meminfo", "MemTotal")))},
		{"system", first("/proc/sys/kernel/ostype") + " " + first("/proc/sys/kernel/osrelease") + " " + runtime.GOARCH},
		{"Go", runtime.Version()},
	}
	for _, row := range more {
		rows = append(rows, row[:])
	}
	return Table(append([][]string{{"", ""}}, rows...))
}

const unknown = "unknown"

// commit is the hash that is checked out, with "-dirty" when files differ from it.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(out))
}

// field finds "name : value" in a file of /proc.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

func first(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(text))
}

// memory turns "24683136 kB" into GiB.
func memory(text string) string {
	kib, err := strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}
