package wire

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed says that a message is not a CheckRequest about an HTTP request.
var ErrMalformed = errors.New("malformed check request")

// Request is what Check needs of a CheckRequest. Body is a part of the message.
type Request struct {
	Method string
	Path   string // as normalised by Envoy, with its query
	Host   string
	Size   int64 // of the body, as Envoy counts it; -1 when it does not know
	Body   []byte

	found bool // there was an HTTP request
}

// Line takes one header line, in the order in which they came: name in lower
// case, and value. Both are parts of the message.
type Line func(name, value []byte)

// Read reads a CheckRequest and hands each header line on. A field that comes
// twice is what protobuf says it is: the last one, or of a message both, merged.
func Read(message []byte, line Line) (Request, error) {
	var r Request
	at := cursor{rest: message}
	for at.next() {
		if at.holds(requestAttributes) {
			at.fail(r.attributes(at.bytes, line))
		}
	}
	if at.err == nil && !r.found {
		return Request{}, ErrMalformed
	}
	return r, at.err
}

func (r *Request) attributes(message []byte, line Line) error {
	at := cursor{rest: message}
	for at.next() {
		if at.holds(attributesRequest) {
			at.fail(r.request(at.bytes, line))
		}
	}
	return at.err
}

func (r *Request) request(message []byte, line Line) error {
	at := cursor{rest: message}
	for at.next() {
		if at.holds(requestHTTP) {
			r.found = true
			at.fail(r.http(at.bytes, line))
		}
	}
	return at.err
}

func (r *Request) http(message []byte, line Line) error {
	at := cursor{rest: message}
	for at.next() {
		switch {
		case at.holds(httpMethod):
			r.Method = string(at.text())
		case at.holds(httpPath):
			r.Path = string(at.text())
		case at.holds(httpHost):
			r.Host = string(at.text())
		case at.holds(httpRawBody):
			r.Body = at.bytes
		case at.holds(httpHeaderMap):
			at.fail(headers(at.bytes, line))
		case at.number == httpSize && at.kind == protowire.VarintType:
			r.Size = int64(at.varint)
		}
	}
	return at.err
}

func headers(message []byte, line Line) error {
	at := cursor{rest: message}
	for at.next() {
		if at.holds(mapHeaders) {
			at.fail(header(at.bytes, line))
		}
	}
	return at.err
}

func header(message []byte, line Line) error {
	var name, value, raw []byte
	at := cursor{rest: message}
	for at.next() {
		switch {
		case at.holds(headerKey):
			name = at.text()
		case at.holds(headerValue):
			value = at.text()
		case at.holds(headerRawValue):
			raw = at.bytes
		}
	}
	if at.err != nil {
		return at.err
	}
	if len(raw) > 0 { // Envoy fills one of the two
		value = raw
	}
	line(name, value)
	return nil
}

// cursor walks over the fields of one message. What it does not know it steps
// over, as protobuf demands; an error ends it.
type cursor struct {
	rest   []byte
	number protowire.Number
	kind   protowire.Type
	bytes  []byte // of a length-delimited field
	varint uint64 // of a varint
	err    error
}

func (c *cursor) next() bool {
	if c.err != nil || len(c.rest) == 0 {
		return false
	}
	var n int
	c.number, c.kind, n = protowire.ConsumeTag(c.rest)
	if n < 0 || c.number > protowire.MaxValidNumber {
		return c.fail(ErrMalformed)
	}
	c.rest = c.rest[n:]
	switch c.kind {
	case protowire.BytesType:
		c.bytes, n = protowire.ConsumeBytes(c.rest)
	case protowire.VarintType:
		c.varint, n = protowire.ConsumeVarint(c.rest)
	default:
		n = protowire.ConsumeFieldValue(c.number, c.kind, c.rest)
	}
	if n < 0 {
		return c.fail(ErrMalformed)
	}
	c.rest = c.rest[n:]
	return true
}

// holds reports whether the field is the length-delimited one of this number.
// One of another kind under a known number is an unknown field.
func (c *cursor) holds(number protowire.Number) bool {
	return c.number == number && c.kind == protowire.BytesType
}

// text is a string field: UTF-8, or the message is malformed.
func (c *cursor) text() []byte {
	if !utf8.Valid(c.bytes) {
		c.fail(ErrMalformed)
	}
	return c.bytes
}

// fail ends the walk, unless err is nil; it returns false.
func (c *cursor) fail(err error) bool {
	if err != nil {
		c.err = err
	}
	return false
}
