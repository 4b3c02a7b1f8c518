package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// printLine prints one line.
func (p *program) printLine(line string) error {
	_, err := fmt.Fprintln(p.stdout, printable(line))
	return err
}

// printLines prints lines one below the other.
func (p *program) printLines(lines []string) error {
	for _, line := range lines {
		if err := p.printLine(line); err != nil {
			return err
		}
	}
	return nil
}

// printRaw prints an answer of the API as it came.
func (p *program) printRaw(body []byte) error {
	_, err := fmt.Fprintln(p.stdout, strings.TrimRight(string(body), "\n"))
	return err
}

// printJSON prints v as the API would.
func (p *program) printJSON(v any) error {
	var out bytes.Buffer
	err := json.MarshalWrite(&out, v, json.Deterministic(true), jsontext.Multiline(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return p.printRaw(out.Bytes())
}

// note tells the person something that is not the result.
func (p *program) note(format string, args ...any) {
	_, _ = fmt.Fprintln(p.stderr, printable(fmt.Sprintf(format, args...)))
}

// printTable prints aligned columns.
func (p *program) printTable(rows [][]string) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			cells[i] = printable(cell)
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// printable writes what a terminal would obey, or cannot show, as an escape:
// a record may hold text of a hostile caller.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// when shows a time to a person; never is what a missing one means.
func when(t time.Time, never string) string {
	if t.IsZero() {
		return never
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}
