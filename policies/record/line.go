package record

import (
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	textMost  = 256     // bytes of a text
	textLeast = 64      // once the line is long
	lineSoft  = 9 << 10 // bytes after which lists end and texts are short
)

// line is a record that is being written. It keeps itself below Most: each
// text and each list is bounded, and what comes after lineSoft is small.
type line struct {
	dst       []byte
	start     int  // of the record in dst
	shortened bool // something was left out
}

func (l *line) long() bool { return len(l.dst)-l.start > lineSoft }

// name begins a member.
func (l *line) name(name string) {
	l.comma()
	l.dst = append(l.dst, '"')
	l.dst = append(l.dst, name...)
	l.dst = append(l.dst, '"', ':')
}

// comma goes before all but the first of a list or object.
func (l *line) comma() {
	if last := l.dst[len(l.dst)-1]; last != '{' && last != '[' {
		l.dst = append(l.dst, ',')
	}
}

func (l *line) open(bracket byte)  { l.dst = append(l.dst, bracket) }
func (l *line) close(bracket byte) { l.dst = append(l.dst, bracket) }

func (l *line) text(name, value string) {
	l.name(name)
	l.quote(value)
}

// given appends a member unless its value is empty.
func (l *line) given(name, value string) {
	if value != "" {
		l.text(name, value)
	}
}

func (l *line) truth(name string, is bool) {
	if is {
		l.name(name)
		l.dst = append(l.dst, "true"...)
	}
}

func (l *line) number(name string, n int64) {
	l.name(name)
	l.dst = strconv.AppendInt(l.dst, n, 10)
}

// quote appends a text, shortened when it is long or would be by its escapes.
// What is not UTF-8 becomes U+FFFD.
func (l *line) quote(text string) {
	most := textMost
	if l.long() {
		most = textLeast
	}
	from := len(l.dst)
	if len(text) <= most {
		l.append(text)
		if len(l.dst)-from <= 2*most {
			return
		}
		most /= 4 // an escape takes up to six bytes
		l.dst = l.dst[:from]
	}
	l.append(cut(text, most))
	if len(l.dst)-from > 2*most {
		l.dst = l.dst[:from]
		l.append(cut(text, most/4))
	}
	l.dst = append(l.dst[:len(l.dst)-1], `…"`...)
	l.shortened = true
}

func (l *line) append(text string) {
	var err error // says that there is a U+FFFD
	l.dst, err = jsontext.AppendQuote(l.dst, text)
	l.shortened = l.shortened || err != nil
}

// cut shortens a text without breaking a letter.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for i := range utf8.UTFMax {
		if utf8.RuneStart(text[most-i]) {
			return text[:most-i]
		}
	}
	return text[:most]
}

// texts appends a list of texts unless it is empty.
func (l *line) texts(name string, texts []string) {
	l.each(name, len(texts), func(i int) { l.quote(texts[i]) })
}

// each appends a list unless it is empty: as many items as there is room for.
func (l *line) each(name string, n int, item func(i int)) {
	if n > 0 {
		l.list(name, n, item)
	}
}

func (l *line) list(name string, n int, item func(i int)) {
	l.name(name)
	l.open('[')
	for i := range n {
		if l.long() && i > 0 {
			l.shortened = true
			break
		}
		l.comma()
		item(i)
	}
	l.close(']')
}
