package wire

import (
	"errors"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// Pair is a name and a value: a header line, its name in lower case, or a field
// of the dynamic metadata.
type Pair = [2]string

// Allowed is the answer that sends a request on.
type Allowed struct {
	Set      []Pair   // request headers; each replaces what was there
	Remove   []string // request headers to be removed, after Set
	Answer   []Pair   // headers of the answer to come; each replaces what was there
	Vary     string   // added to what the answer says in Vary; "" adds nothing
	Metadata []Pair   // dynamic metadata
}

// Denied is the answer in the upstream's place.
type Denied struct {
	Status  int
	Headers []Pair
	Body    []byte
}

// ErrText says that a text of an answer is not UTF-8: Envoy would refuse it.
var ErrText = errors.New("a text of the check response is not UTF-8")

// Append appends a as a CheckResponse. Envoy reads value; raw_value would
// arrive empty.
func (a *Allowed) Append(dst []byte) ([]byte, error) {
	w := writer{out: dst}
	w.end(responseStatus, w.begin()) // OK is code 0, the default
	ok := w.begin()
	for _, line := range a.Set {
		w.option(okHeaders, line, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	}
	for _, name := range a.Remove {
		w.text(okRemove, name)
	}
	for _, line := range a.Answer {
		w.option(okAnswer, line, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	}
	if a.Vary != "" {
		w.option(okAnswer, Pair{"vary", a.Vary}, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	}
	w.end(responseOK, ok)
	metadata := w.begin()
	for _, field := range a.Metadata {
		w.field(field)
	}
	w.end(responseMetadata, metadata)
	return w.out, w.err
}

// Append appends d as a CheckResponse.
func (d *Denied) Append(dst []byte) ([]byte, error) {
	w := writer{out: dst}
	status := w.begin()
	w.varint(statusCode, uint64(codes.PermissionDenied))
	w.end(responseStatus, status)
	denied := w.begin()
	code := w.begin()
	w.varint(httpStatusCode, uint64(d.Status))
	w.end(deniedStatus, code)
	for _, line := range d.Headers {
		w.option(deniedHeaders, line, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	}
	if len(d.Body) > 0 {
		w.valid(utf8.Valid(d.Body))
		w.open(deniedBody, len(d.Body))
		w.out = append(w.out, d.Body...)
	}
	w.end(responseDenied, denied)
	return w.out, w.err
}

// writer appends fields. The length of a message stands in front of it: for the
// small ones, of which there are many, it is computed first; the large ones are
// moved behind it at their end.
type writer struct {
	out []byte
	err error
}

func (w *writer) begin() (at int) { return len(w.out) }

func (w *writer) end(number protowire.Number, at int) {
	length := len(w.out) - at
	w.open(number, length) // makes room; what stands before it is moved there
	var space [16]byte
	head := append(space[:0], w.out[at+length:]...)
	copy(w.out[at+len(head):], w.out[at:at+length])
	copy(w.out[at:], head)
}

// open begins a message whose length is known.
func (w *writer) open(number protowire.Number, length int) {
	w.out = protowire.AppendTag(w.out, number, protowire.BytesType)
	w.out = protowire.AppendVarint(w.out, uint64(length))
}

func (w *writer) varint(number protowire.Number, value uint64) {
	w.out = protowire.AppendTag(w.out, number, protowire.VarintType)
	w.out = protowire.AppendVarint(w.out, value)
}

func (w *writer) text(number protowire.Number, text string) {
	w.valid(utf8.ValidString(text))
	w.open(number, len(text))
	w.out = append(w.out, text...)
}

func (w *writer) valid(is bool) {
	if !is {
		w.err = ErrText
	}
}

// sized is what a field of length bytes takes: every number is below 16, so a
// tag is one byte.
func sized(length int) int { return 1 + protowire.SizeBytes(length) }

// option is a HeaderValueOption.
func (w *writer) option(number protowire.Number, line Pair, action corev3.HeaderValueOption_HeaderAppendAction) {
	header := sized(len(line[0])) + sized(len(line[1]))
	w.open(number, sized(header)+2)
	w.open(optionHeader, header)
	w.text(headerKey, line[0])
	w.text(headerValue, line[1])
	w.varint(optionAction, uint64(action)) // 2 bytes
}

// field is an entry of a Struct's map, its value a string.
func (w *writer) field(field Pair) {
	value := sized(len(field[1]))
	w.open(structFields, sized(len(field[0]))+sized(value))
	w.text(fieldName, field[0])
	w.open(fieldValue, value)
	w.text(valueString, field[1])
}
