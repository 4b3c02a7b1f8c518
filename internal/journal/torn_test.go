package journal_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/journal"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// A file that ends anywhere, or in what a disk makes of a block that it did not
// write, opens up to its last whole line, and goes on from there.
func TestTornEnd(t *testing.T) {
	dir, h := t.TempDir(), newHistory()
	j := opened(t, dir)
	follow(t, j, h)
	start := h.at
	for _, key := range []string{"a", "b", "c"} {
		h.end(key)
		follow(t, j, h)
	}
	path := j.Path()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string][]byte{"zeros": append(append([]byte{}, whole...), make([]byte, 100_000)...)}
	for n := range len(whole) + 1 {
		ends[fmt.Sprint(n, " bytes")] = whole[:n]
	}
	for name, text := range ends {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(dir, database)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines := strings.Count(string(text), "\n")
		if size, want := fileSize(t, j), strings.LastIndex(string(text), "\n")+1; size != int64(want) {
			t.Fatalf("%s: %d bytes are left, want %d", name, size, want)
		}
		if want := max(0, int64(lines)-1); j.Seen().Seq != want || (lines == 0) != (j.Seen() == store.Reached{}) {
			t.Fatalf("%s: seen %+v, want seq %d", name, j.Seen(), want)
		}
		follow(t, j, h)
		if lines > 0 {
			wantMissing(t, j, start, true, "a", "b", "c")
		}
		again := opened(t, dir)
		if again.Seen() != h.at {
			t.Fatalf("%s: then seen %+v", name, again.Seen())
		}
		if err := errors.Join(j.Close(), again.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever else is not a journal's line stops the start, and says where it is.
func TestGarbageIsNamed(t *testing.T) {
	const position = `{"database":"TESTDATABASE","epoch":2,"seq":7,"revision":3}`
	entry := `{"database":"TESTDATABASE","epoch":2,"seq":8,"revision":3,"kind":1,"key":"k","server":"` + server.String() + `"}`
	for _, tt := range []struct{ name, line, want string }{
		{"no JSON", "garbage", "invalid character"},
		{"nothing", "", "EOF"},
		{"zeros", "\x00\x00\x00", "invalid character"},
		{"two in one line", position + position, "invalid character"},
		{"another object", `{"database":"TESTDATABASE","epoch":2,"seq":7,"revision":3,"more":1}`, "more"},
		{"a name twice", `{"database":"TESTDATABASE","epoch":2,"epoch":2,"seq":7,"revision":3}`, "epoch"},
		{"another database", strings.ReplaceAll(position, "TEST", "BEST"), "another database"},
		{"no epoch", `{"database":"TESTDATABASE","seq":7,"revision":3}`, "a number is missing"},
		{"negative seq", `{"database":"TESTDATABASE","epoch":2,"seq":-7,"revision":3}`, "too small"},
		{"entry without a key", strings.ReplaceAll(entry, `"key":"k",`, ""), "needs kind, key and server"},
		{"entry without a kind", strings.ReplaceAll(entry, `"kind":1,`, ""), "needs kind, key and server"},
		{"entry of a negative kind", strings.ReplaceAll(entry, `"kind":1,`, `"kind":-1,`), "needs kind, key and server"},
		{"entry of no server", strings.ReplaceAll(entry, server.String(), "x"), "needs kind, key and server"},
		{"older epoch", strings.ReplaceAll(position, `"epoch":2`, `"epoch":1`), "goes back"},
		{"older position", strings.ReplaceAll(position, `"seq":7`, `"seq":6`), "goes back"},
		{"older entry", strings.ReplaceAll(entry, `"seq":8`, `"seq":7`), "goes back"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := opened(t, dir).Path()
			text := position + "\n" + tt.line + "\n" + strings.ReplaceAll(entry, `"seq":8`, `"seq":9`) + "\n"
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := journal.Open(dir, database)
			if err == nil || !strings.Contains(err.Error(), path+", line 2: ") || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want line 2 with %q", err, tt.want)
			}
			after, err := os.ReadFile(path)
			if err != nil || string(after) != text {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

// killedChild makes the test binary the program that gets killed: it has the
// directory.
const killedChild = "ARBITER_TEST_JOURNAL_CHILD"

// followUntilKilled goes on where the file ends, and says on standard output
// what was acknowledged to it. It ends by itself only with its standard input.
func followUntilKilled(dir string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	j, err := journal.Open(dir, database)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	j.Keep(40)
	h := newHistory()
	h.at.Seq, h.at.Revision = j.Seen().Seq, j.Seen().Revision
	for ctx.Err() == nil {
		for range 1 + h.at.Seq%3 {
			h.end(strconv.FormatInt(h.at.Seq+1, 10))
		}
		h.at.Revision++
		if err := j.Follow(ctx, h); err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println(h.at.Seq)
		h.entries = nil
	}
}

// TestKilledProcessLosesNothingNoted kills a process that writes, several times
// over the same file, also while it is written anew.
func TestKilledProcessLosesNothingNoted(t *testing.T) {
	dir := t.TempDir()
	for _, lines := range []int{1, 20, 37, 60, 90, 200} {
		acknowledged := killAfter(t, dir, lines)
		j := opened(t, dir)
		seen := j.Seen()
		if seen.Seq < acknowledged {
			t.Errorf("seq %d was acknowledged, seen is %d", acknowledged, seen.Seq)
		}
		since := seen
		since.Seq = max(0, seen.Seq-40)
		got, complete := keys(t, j, since)
		if !complete || int64(len(got)) != seen.Seq-since.Seq {
			t.Errorf("since %d: %d entries up to %d, complete %v", since.Seq, len(got), seen.Seq, complete)
		}
		for i, key := range got {
			if want := strconv.FormatInt(since.Seq+int64(i)+1, 10); key != want {
				t.Fatalf("entry %s, want %s", key, want)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func killAfter(t *testing.T, dir string, lines int) (acknowledged int64) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), killedChild+"="+dir)
	child.Stderr = os.Stderr
	stdin, err1 := child.StdinPipe()
	stdout, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2, child.Start()); err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	n := 0
	for in := bufio.NewScanner(stdout); in.Scan(); { // also what was in the pipe when it died
		seq, err := strconv.ParseInt(in.Text(), 10, 64)
		if err != nil {
			t.Fatal(in.Text())
		}
		acknowledged = seq
		if n++; n == lines {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || n < lines {
		t.Fatalf("the child ended by itself after %d lines", n)
	}
	return acknowledged
}
