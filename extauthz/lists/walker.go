package lists

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// Refusal says that an answer cannot be read in exactly one way, or is too long.
// It carries nothing of the answer.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return "the answer is refused: " + r.Reason }

// Reasons of a refusal.
const (
	ReasonTooLong    = "too_long"
	ReasonTooDeep    = "too_deep"      // over jsonrpc.MaxDepth
	ReasonInvalid    = "invalid_json"  // not I-JSON, cut off, or more than one value
	ReasonDuplicate  = "duplicate_key" // at any depth
	ReasonAmbiguous  = "ambiguous_key" // one that a careless reader takes for another
	ReasonNotMessage = "message_not_object"
	ReasonNotArray   = "list_not_array"
)

// errAmbiguous comes with an object that was read to its end.
var errAmbiguous error = &Refusal{ReasonAmbiguous}

// span is a part of the body, from its first byte to the one behind its last.
type span struct{ from, to int }

// edit puts a text in the place of a part of the body.
type edit struct {
	span

	text string
}

// walker walks over the tokens of one body, once. jsontext refuses what is not
// I-JSON: invalid UTF-8, lone surrogates, duplicate names.
type walker struct {
	filter  Filter
	body    []byte
	dec     *jsontext.Decoder
	folding [64]byte // for names as a careless reader has them
	plain   [64]byte // for names with escapes
	lists   []list
	edits   []edit
}

func newWalker(f Filter, body []byte) *walker {
	return &walker{filter: f, body: body, dec: jsontext.NewDecoder(bytes.NewBuffer(body))}
}

func (w *walker) replace(at span, text string) {
	if at.from < at.to || text != "" {
		w.edits = append(w.edits, edit{at, text})
	}
}

// apply makes the new body; the old one when nothing changes.
func (w *walker) apply() []byte {
	if len(w.edits) == 0 {
		return w.body
	}
	slices.SortFunc(w.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	out, done := make([]byte, 0, len(w.body)+len(w.edits[0].text)), 0
	for _, e := range w.edits {
		out = append(append(out, w.body[done:e.from]...), e.text...)
		done = e.to
	}
	return append(out, w.body[done:]...)
}

// object reads an object; member reads the value of each key: one of names, or
// "" for any other. With a key that some readers take for one of names it is
// read to its end, and errAmbiguous.
func (w *walker) object(names keys, member func(key string) error) (at span, err error) {
	ambiguous := false
	at, err = w.nest(func() error {
		raw, err := w.dec.ReadValue()
		if err != nil {
			return w.syntax(err)
		}
		key, exact := names.find(w.unquoted(raw), w.folding[:0])
		ambiguous = ambiguous || !exact
		return member(key)
	})
	if err == nil && ambiguous {
		err = errAmbiguous
	}
	return at, err
}

func (w *walker) array(element func() error) error {
	_, err := w.nest(element)
	return err
}

// nest reads an object or array; part reads one of its parts. It is for the few
// levels that are looked into: value counts those below.
func (w *walker) nest(part func() error) (at span, err error) {
	if _, err := w.dec.ReadToken(); err != nil {
		return at, w.syntax(err)
	}
	at.from = int(w.dec.InputOffset()) - 1
	for kind := w.dec.PeekKind(); kind != '}' && kind != ']'; kind = w.dec.PeekKind() {
		if err := part(); err != nil {
			return at, err
		}
	}
	if _, err := w.dec.ReadToken(); err != nil {
		return at, w.syntax(err)
	}
	at.to = int(w.dec.InputOffset())
	return at, nil
}

// value reads one value of any kind, down to the depth limit.
func (w *walker) value() (at span, err error) {
	if kind := w.dec.PeekKind(); kind != '{' && kind != '[' {
		raw, err := w.dec.ReadValue()
		if err != nil {
			return at, w.syntax(err)
		}
		end := int(w.dec.InputOffset())
		return span{end - len(raw), end}, nil
	}
	depth := w.dec.StackDepth()
	for first := true; first || w.dec.StackDepth() > depth; first = false {
		if _, err := w.dec.ReadToken(); err != nil {
			return at, w.syntax(err)
		}
		if first {
			at.from = int(w.dec.InputOffset()) - 1
		}
		if w.dec.StackDepth() > jsonrpc.MaxDepth {
			return at, &Refusal{ReasonTooDeep}
		}
	}
	at.to = int(w.dec.InputOffset())
	return at, nil
}

// wrong is a refusal, unless what stands here is no JSON at all.
func (w *walker) wrong(reason string) error {
	if _, err := w.value(); err != nil {
		return err
	}
	return &Refusal{reason}
}

// end makes sure that nothing follows.
func (w *walker) end() error {
	if _, err := w.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &Refusal{ReasonInvalid}
	}
	return nil
}

func (w *walker) syntax(err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &Refusal{ReasonDuplicate}
	}
	return &Refusal{ReasonInvalid}
}

// text is the string at a place, without its escapes.
func (w *walker) text(at span) string { return string(w.unquoted(w.body[at.from:at.to])) }

// unquoted is what a string that jsontext has accepted says. It holds until the
// next call.
func (w *walker) unquoted(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(w.plain[:0], raw) // cannot fail: raw was accepted
	return text
}

// keys are names by what a careless reader makes of them.
type keys map[string]string

func newKeys(names ...string) keys {
	out := make(keys, len(names))
	for _, name := range names {
		out[string(jsonrpc.Canonical(nil, []byte(name)))] = name
	}
	return out
}

// find returns the one that name is, or "". It is not ok if name is none, but
// some reader might take it for one.
func (k keys) find(name, scratch []byte) (key string, ok bool) {
	key = k[string(jsonrpc.Canonical(scratch, name))]
	if key == string(name) {
		return key, true
	}
	return "", key == ""
}
