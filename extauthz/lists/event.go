package lists

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// line is one line of an event.
type line struct {
	text []byte
	end  []byte // CRLF, LF or CR
}

// event is one whole event, and what readers make of it.
type event struct {
	raw   []byte
	lines []line // without the empty one at its end
	data  []byte // as the standard has it: its data lines, joined by LF
	many  bool   // it has more than one data line
	plain bool   // every reader finds the same lines and fields in it
}

// readEvent reads an event up to the empty line that ends it.
func readEvent(raw []byte) event {
	e := event{raw: raw, plain: true}
	var found [][]byte
	for len(raw) > 0 {
		var l line
		l, raw = cutLine(raw)
		e.plain = e.plain && !l.odd() && bytes.Equal(l.end, firstOf(e.lines, l).end)
		if len(l.text) == 0 {
			break
		}
		e.lines = append(e.lines, l)
		if name, value := l.field(); string(name) == "data" {
			found = append(found, value)
			e.plain = e.plain && l.text[min(len("data"), len(l.text)-1)] == ':'
		}
	}
	e.data, e.many = bytes.Join(found, []byte("\n")), len(found) > 1
	return e
}

func firstOf(lines []line, otherwise line) line {
	if len(lines) > 0 {
		return lines[0]
	}
	return otherwise
}

func cutLine(raw []byte) (l line, rest []byte) {
	end, next := lineEnd(raw, 0, true)
	return line{raw[:end], raw[end:next]}, raw[next:]
}

// field splits a line as the standard has it. A comment has no name.
func (l line) field() (name, value []byte) {
	name, value, _ = bytes.Cut(l.text, []byte(":"))
	return name, bytes.TrimPrefix(value, []byte(" "))
}

// odd tells whether readers may differ about the line: where it ends (some take
// a lone CR for no end; others, Python's among them, take more characters for
// one) or what its field is (a name in another case, or behind a space).
func (l line) odd() bool {
	name, _ := l.field()
	if string(l.end) == "\r" || len(l.text) > 0 && !slices.Contains([]string{"", "data", "event", "id", "retry"}, string(name)) {
		return true
	}
	if !utf8.Valid(l.text) {
		return true
	}
	for _, c := range string(l.text) {
		if c < ' ' && c != '\t' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029' || c == '\ufeff' {
			return true
		}
	}
	return false
}

// appendTo appends the event as its caller may see it.
func (e event) appendTo(out []byte, f Filter) ([]byte, int, error) {
	if len(bytes.Trim(e.data, " \t\n")) == 0 { // says nothing: keeps alive, or tells an id
		if e.plain && !e.many {
			return append(out, e.raw...), 0, nil
		}
		return e.rewrite(out, nil), 0, nil
	}
	data, hidden, err := f.Message(e.data)
	if err != nil {
		return out, 0, err
	}
	if e.plain && !e.many && bytes.Equal(data, e.data) {
		return append(out, e.raw...), 0, nil
	}
	return e.rewrite(out, data), hidden, nil
}

// separators are what some readers end a line at. In JSON they stand inside of
// strings, where an escape says the same.
var separators = [][2][]byte{
	{[]byte("\u0085"), []byte(`\u0085`)},
	{[]byte("\u2028"), []byte(`\u2028`)},
	{[]byte("\u2029"), []byte(`\u2029`)},
}

// rewrite appends the event so that all readers find the same in it: lines end
// with LF, the data is JSON on one line, and what readers of the standard drop
// or others may misread is not there.
func (e event) rewrite(out, data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\n"), []byte(" ")) // between JSON's tokens
	for _, s := range separators {
		data = bytes.ReplaceAll(data, s[0], s[1])
	}
	written := false
	for _, l := range e.lines {
		if name, _ := l.field(); string(name) != "data" {
			out = appendLine(out, line{l.text, []byte("\n")})
			continue
		}
		if !written {
			out = append(append(append(out, "data: "...), data...), '\n')
		}
		written = true
	}
	return append(out, '\n')
}

// appendLine appends a line that is no data, unless readers may differ about
// it: nobody needs those.
func appendLine(out []byte, l line) []byte {
	if string(l.end) == "\r" {
		l.end = []byte("\n")
	}
	if l.odd() {
		return out
	}
	return append(append(out, l.text...), l.end...)
}
