package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// reader walks over the tokens of one body, once. jsontext refuses what is not
// I-JSON: invalid UTF-8, lone surrogates, duplicate names.
type reader struct {
	body    []byte
	rules   Rules
	source  bytes.Buffer // over body: the decoder reads a Buffer in place
	dec     jsontext.Decoder
	scratch [64]byte // for names with escapes
	folding [64]byte // for canonical names
	folded  foldedNames
	fault   *Error // the first fault inside params; told when all else is sound
	ordinal int    // of the message in its batch, from 1; 0: no batch
}

// readers keeps the memory of readers, and nothing of what they read, between
// bodies: a usual one then takes 4 allocations instead of more than 50.
var readers = sync.Pool{New: func() any { return new(reader) }}

// keptBody is the largest body after which a reader's memory is kept.
const keptBody = 64 << 10

// newReader begins to read a body. The reader has to be released.
func newReader(body []byte, rules Rules) *reader {
	r := readers.Get().(*reader)
	r.body, r.rules = body, rules
	r.source = *bytes.NewBuffer(body)
	r.dec.Reset(&r.source)
	return r
}

// release forgets the body. Nothing that read returned is in the reader's memory.
func (r *reader) release() {
	if len(r.body) > keptBody {
		return
	}
	r.source = bytes.Buffer{}
	r.dec.Reset(&r.source)
	r.folded.reset()
	r.body, r.rules, r.fault, r.ordinal = nil, Rules{}, nil, 0
	readers.Put(r)
}

// note keeps a fault of the params, to be told when everything else was read.
func (r *reader) note(reason, what string) {
	if r.fault == nil {
		r.fault = &Error{Code: CodeInvalidParams, Reason: reason, Message: "invalid params: " + what + r.where()}
	}
}

// invalid is a fault of the message around the params.
func (r *reader) invalid(reason, what string) *Error {
	return &Error{Code: CodeInvalidRequest, Reason: reason, Message: "invalid request: " + what + r.where()}
}

// where tells which message of a batch is meant.
func (r *reader) where() string {
	if r.ordinal == 0 {
		return ""
	}
	return " (message " + strconv.Itoa(r.ordinal) + " of the batch)"
}

// object reads an object. member has to read the value of each key: one of keys,
// or "" for one that the protocol does not know. The object is ambiguous if some
// readers would take an unknown key for one of keys.
func (r *reader) object(keys keySet, member func(key string) error) (raw jsontext.Value, ambiguous bool, err error) {
	start, err := r.enter()
	if err != nil {
		return nil, false, err
	}
	for r.more() {
		name, err := r.name()
		if err != nil {
			return nil, false, err
		}
		key, exact := keys.find(name, r.folding[:0])
		if !exact {
			key, ambiguous = "", true
		}
		if err := member(key); err != nil {
			return nil, false, err
		}
	}
	raw, err = r.leave(start)
	return raw, ambiguous, err
}

// enter reads the start of an object or array and returns its offset.
func (r *reader) enter() (int64, error) {
	if _, err := r.dec.ReadToken(); err != nil {
		return 0, r.syntax(err)
	}
	start := r.dec.InputOffset() - 1
	if r.dec.StackDepth() > MaxDepth {
		return 0, tooDeep(start)
	}
	return start, nil
}

// leave reads the end of the object or array that began at start and returns
// the whole of it.
func (r *reader) leave(start int64) (jsontext.Value, error) {
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, r.syntax(err)
	}
	end := r.dec.InputOffset()
	return r.body[start:end:end], nil
}

// more tells whether another member or element follows. It says so too when the
// body is broken: the next read tells.
func (r *reader) more() bool {
	kind := r.dec.PeekKind()
	return kind != '}' && kind != ']'
}

// name reads an object's next name without its escapes. It holds until the next
// call.
func (r *reader) name() ([]byte, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.syntax(err)
	}
	return unquoted(r.scratch[:0], raw), nil
}

// unquoted is the text of a string that jsontext has accepted.
func unquoted(dst []byte, raw jsontext.Value) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(dst, raw) // cannot fail: raw was accepted
	return text
}

// scalar reads a value that is neither object nor array.
func (r *reader) scalar() (jsontext.Value, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.syntax(err)
	}
	end := r.dec.InputOffset()
	return r.body[end-int64(len(raw)) : end : end], nil
}

// value reads one value of any kind, down to the depth limit.
func (r *reader) value() (jsontext.Value, error) {
	if !nested(r.dec.PeekKind()) {
		return r.scalar()
	}
	depth := r.dec.StackDepth()
	start, err := r.enter()
	if err != nil {
		return nil, err
	}
	for r.dec.StackDepth() > depth {
		if _, err := r.dec.ReadToken(); err != nil {
			return nil, r.syntax(err)
		}
		if r.dec.StackDepth() > MaxDepth {
			return nil, tooDeep(r.dec.InputOffset() - 1)
		}
	}
	end := r.dec.InputOffset()
	return r.body[start:end:end], nil
}

// end makes sure that nothing follows.
func (r *reader) end() error {
	offset := r.dec.InputOffset()
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return at(ReasonTrailing, "data after the message", offset)
	}
	return nil
}

func nested(kind jsontext.Kind) bool { return kind == '{' || kind == '[' }
