package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/report"
)

const document = "# Title\n\n<!-- a:begin -->\nold\n<!-- a:end -->\nbetween\n<!-- b:begin -->\n<!-- b:end -->\nlast\n"

func TestReplace(t *testing.T) {
	const want = "# Title\n\n<!-- a:begin -->\n\nnew\n\n<!-- a:end -->\nbetween\n<!-- b:begin -->\n<!-- b:end -->\nlast\n"
	got, err := report.Replace(document, "a", "\nnew\n")
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := report.Replace(got, "a", "new"); err != nil || again != want {
		t.Errorf("a second time: %q, %v", again, err)
	}
	for name, broken := range map[string]string{
		"no section": "text", "no end": "<!-- a:begin -->\nx", "no begin": "x<!-- a:end -->",
		"end first": "<!-- a:end -->\n<!-- a:begin -->\n", "twice": document + document,
	} {
		if _, err := report.Replace(broken, "a", "new"); err == nil {
			t.Errorf("%s: replaced", name)
		}
	}
}

func TestWriteLeavesAFileItCannotChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.md")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report.Write(file, "c", "new"); err == nil {
		t.Error("wrote a section that is not there")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != document {
		t.Errorf("%q, %v", text, err)
	}
	if err := report.Write(file, "b", "new"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "<!-- b:begin -->\n\nnew\n\n<!-- b:end -->") {
		t.Errorf("%q, %v", text, err)
	}
}

func TestMachine(t *testing.T) {
	text := report.Machine(t.Context(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), [2]string{"Envoy", "1.40.0"})
	for _, want := range []string{"| measured | 2026-01-02 03:04 UTC |", "| commit | ", "| machine | ", " cores, ", "| Go | go1.", "| Envoy | 1.40.0 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
