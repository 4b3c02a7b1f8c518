package store

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// Page asks for a part of a list.
type Page struct {
	After string // cursor that the part before ended with; "": from the start
	Limit int    // 1 to 500, clamped; 0: 100
}

const (
	defaultPage = 100
	largestPage = 500
)

func (p Page) limit() int {
	if p.Limit == 0 {
		return defaultPage
	}
	return min(max(p.Limit, 1), largestPage)
}

// longestCursor is far above what a name and an id take.
const longestCursor = 4096

// cursor names the last item of a page by what the list is ordered by.
func cursor(major, minor string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(major + "\x00" + minor))
}

func parseCursor(text string) (major, minor string, err error) {
	if text == "" {
		return "", "", nil
	}
	if len(text) > longestCursor {
		return "", "", ErrCursor
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || !utf8.Valid(raw) || strings.Count(string(raw), "\x00") != 1 {
		return "", "", ErrCursor
	}
	major, minor, _ = strings.Cut(string(raw), "\x00")
	return major, minor, nil
}

// mostRows is the largest part of a log that is read at once.
const mostRows = 10_000

func atMost(limit int) int {
	if limit <= 0 {
		return mostRows
	}
	return min(limit, mostRows)
}

// rowsPerWrite keeps a transaction over many rows so short that nobody notices
// waiting for it.
const rowsPerWrite = 500
