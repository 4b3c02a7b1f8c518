package record

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	partsMost = 64   // that a record has of one value
	itemsMost = 8    // of one array
	keyMost   = 64   // bytes of a key in a path
	pathMost  = 200  // bytes of a path, before its last key
	pathsMost = 4096 // bytes of all paths together
	deepest   = 100  // far more than a body may have
)

// Part is one part of a value: where it stands and of what kind it is.
type Part struct {
	Path string `json:"path"`           // JSON pointer; a long key is cut
	Type string `json:"type"`           // string, number, boolean, null, object or array
	Size int    `json:"size,omitempty"` // bytes of a string, members of an object or array
}

// part is a Part before it is written.
type part struct {
	path int // end of its path in walk.paths
	kind string
	size int // -1: has none
}

// walk goes once over a value that the strict parser has read, and keeps what
// its first parts are. It never keeps a byte of a value, and what is not JSON
// only ends it.
type walk struct {
	value  []byte
	at     int
	broken bool
	path   []byte // of where it is
	paths  []byte
	parts  []part
}

// walks keeps the memory of walks: it holds key names, and never a value.
var walks = sync.Pool{New: func() any { return &walk{parts: make([]part, 0, partsMost)} }}

// shape appends a list of the parts of a value.
func (l *line) shape(name string, value jsontext.Value) {
	w := walks.Get().(*walk)
	defer walks.Put(w)
	w.value, w.at, w.broken, w.path, w.paths, w.parts = value, 0, false, w.path[:0], w.paths[:0], w.parts[:0]
	w.any(0, true)
	w.value = nil
	from := 0
	l.list(name, len(w.parts), func(i int) {
		p := w.parts[i]
		l.open('{')
		l.name("path")
		l.dst = appendQuoted(l.dst, w.paths[from:p.path])
		from = p.path
		l.name("type")
		l.append(p.kind)
		if p.size >= 0 {
			l.number("size", int64(p.size))
		}
		l.close('}')
	})
}

func appendQuoted(dst, text []byte) []byte {
	dst, _ = jsontext.AppendQuote(dst, text) // its error says that it put U+FFFD somewhere
	return dst
}

// any goes over the next value. What is listed gets a part while there is room.
func (w *walk) any(depth int, listed bool) {
	w.space()
	if w.broken = w.broken || w.at >= len(w.value) || depth > deepest; w.broken {
		return
	}
	listed = listed && len(w.parts) < partsMost && len(w.paths) < pathsMost
	switch b := w.value[w.at]; b {
	case '{', '[':
		at := w.note(listed, "object")
		if b == '[' && at >= 0 {
			w.parts[at].kind = "array"
		}
		size := w.members(depth, b == '[', listed)
		if at >= 0 {
			w.parts[at].size = size
		}
	case '"':
		at := w.note(listed, "string")
		if size := w.text(); at >= 0 {
			w.parts[at].size = size
		}
	case 't', 'f':
		w.note(listed, "boolean")
		w.word()
	case 'n':
		w.note(listed, "null")
		w.word()
	default:
		w.note(listed, "number")
		w.word()
	}
}

// note adds a part for where the walk is, and returns its index, or -1.
func (w *walk) note(listed bool, kind string) int {
	if !listed {
		return -1
	}
	w.paths = append(w.paths, w.path...)
	w.parts = append(w.parts, part{path: len(w.paths), kind: kind, size: -1})
	return len(w.parts) - 1
}

// members goes over an object or array and counts what it has.
func (w *walk) members(depth int, array, listed bool) (n int) {
	above := len(w.path)
	w.at++
	for ; ; n++ {
		w.space()
		switch {
		case w.broken || w.at >= len(w.value):
			w.broken = true
			return n
		case w.value[w.at] == '}' || w.value[w.at] == ']':
			w.at++
			return n
		case w.value[w.at] == ',':
			w.at++
			w.space()
		}
		here := listed && len(w.parts) < partsMost && above <= pathMost && (!array || n < itemsMost)
		if array {
			if here {
				w.path = strconv.AppendInt(append(w.path, '/'), int64(n), 10)
			}
		} else {
			w.key(here)
		}
		w.any(depth+1, here)
		w.path = w.path[:above]
	}
}

// key goes over the name of a member and, where it is listed, into it.
func (w *walk) key(listed bool) {
	from := w.at
	if w.broken = w.broken || from >= len(w.value) || w.value[from] != '"'; w.broken {
		return
	}
	w.text()
	name := w.value[from:w.at]
	w.space()
	if w.broken = w.broken || w.at >= len(w.value) || w.value[w.at] != ':'; w.broken {
		return
	}
	w.at++
	if listed {
		w.path = appendKey(append(w.path, '/'), name)
	}
}

// appendKey appends a quoted name as a part of a JSON pointer.
func appendKey(dst, quoted []byte) []byte {
	name := string(quoted[1 : len(quoted)-1])
	if strings.IndexByte(name, '\\') >= 0 {
		plain, _ := jsontext.AppendUnquote(nil, quoted) // what cannot be read is U+FFFD
		name = string(plain)
	}
	short := cut(name, keyMost)
	if strings.ContainsAny(short, "~/") {
		short = strings.ReplaceAll(strings.ReplaceAll(short, "~", "~0"), "/", "~1")
	}
	dst = append(dst, short...)
	if len(name) > keyMost {
		dst = append(dst, "…"...)
	}
	return dst
}

// text goes over a string and returns how many bytes it stands for.
func (w *walk) text() (size int) {
	from := w.at + 1
	end := bytes.IndexByte(w.value[from:], '"')
	if end >= 0 && bytes.IndexByte(w.value[from:from+end], '\\') < 0 {
		w.at = from + end + 1
		return end
	}
	for w.at = from; w.at < len(w.value); {
		switch w.value[w.at] {
		case '"':
			w.at++
			return size
		case '\\':
			size += w.escape()
		default:
			w.at++
			size++
		}
	}
	w.broken = true
	return size
}

// escape goes over one, or over a pair of surrogates.
func (w *walk) escape() (size int) {
	rest := w.value[w.at:]
	if len(rest) < 6 || rest[1] != 'u' {
		w.at = min(w.at+2, len(w.value))
		return 1
	}
	w.at += 6
	code, err := strconv.ParseUint(string(rest[2:6]), 16, 32)
	switch {
	case err != nil:
		w.broken = true
		return 0
	case code >= 0xd800 && code < 0xdc00 && len(rest) >= 12 && rest[6] == '\\':
		w.at += 6
		return 4
	}
	return max(utf8.RuneLen(rune(code)), 1)
}

// word goes over a number or a literal.
func (w *walk) word() {
	from := w.at
	for w.at < len(w.value) {
		switch w.value[w.at] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			w.broken = w.broken || w.at == from
			return
		}
		w.at++
	}
}

func (w *walk) space() {
	for w.at < len(w.value) {
		switch w.value[w.at] {
		case ' ', '\t', '\n', '\r':
			w.at++
		default:
			return
		}
	}
}
