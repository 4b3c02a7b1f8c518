// Package report keeps the figures of docs/performance.md: each program that
// measures owns one section of the file, and replaces nothing else.
//
// Place in the flow: it belongs to none. It trusts the file it is told to write.
package report

import (
	"fmt"
	"os"
	"strings"
)

// Replace puts text into the section of a markdown document that stands between
// the lines <!-- name:begin --> and <!-- name:end -->. A document without these
// lines, or with two such sections, is an error.
func Replace(document, name, text string) (string, error) {
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	before, rest, found := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed || strings.Contains(after, begin) {
		return "", fmt.Errorf("section %s: it must stand once between %q and %q", name, strings.TrimSpace(begin), end)
	}
	return before + begin + "\n" + strings.Trim(text, "\n") + "\n\n" + end + after, nil
}

// Write replaces a section of a file.
func Write(file, name, text string) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := Replace(string(document), name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644) //nolint:gosec // a document for everybody
}

// Table is a markdown table, the first row its head.
func Table(rows [][]string) string {
	var out strings.Builder
	for i, row := range rows {
		out.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			out.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return out.String()
}
