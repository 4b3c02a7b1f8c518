// Package mask blanks parts of JSON values that are shown or kept. extauthz
// masks argument values with it before they leave; control refuses what was
// masked by other rules than those that hold now. It trusts whoever wrote the
// rules and nothing of the values.
package mask

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Most of what the rules of one mask may be.
const (
	MostPointers = 64
	MostBytes    = 256 // of one pointer
)

// ErrPointer says what a rule has to look like.
var ErrPointer = errors.New(`not a JSON pointer (RFC 6901) of at most 256 bytes, like /password or /users/*/email, where * is any key or index`)

// Mask is a set of JSON pointers into a value; a part of * is any key or index.
// The zero Mask blanks nothing.
type Mask struct {
	rules [][]string
	id    string
}

// Parse reads rules. One that is wrong makes the whole mask wrong (ErrPointer):
// a part that nobody blanks may be the one that was meant.
func Parse(pointers []string) (*Mask, error) {
	if len(pointers) > MostPointers {
		return nil, fmt.Errorf("a mask has %d pointers, more than %d", len(pointers), MostPointers)
	}
	out := &Mask{id: ID(pointers)}
	for i, pointer := range pointers {
		rule, err := parse(pointer)
		if err != nil {
			return nil, fmt.Errorf("pointer %d: %w", i, err)
		}
		out.rules = append(out.rules, rule)
	}
	return out, nil
}

// parse reads one pointer: "" is the value as a whole.
func parse(pointer string) ([]string, error) {
	p := jsontext.Pointer(pointer)
	if len(pointer) > MostBytes || !p.IsValid() {
		return nil, ErrPointer
	}
	rule := []string{}
	for part := range p.Tokens() {
		rule = append(rule, part)
	}
	return rule, nil
}

// ID names exactly these rules: 16 hexadecimal digits.
func ID(pointers []string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q", pointers)))
	return hex.EncodeToString(sum[:8])
}

// ID is that of the rules.
func (m *Mask) ID() string { return m.id }

// Blank stands for a value that is masked.
const Blank = "masked"

// Append appends a value without white space, its blanked parts as "masked".
// Keys are compared without regard to case, since some servers do the same.
// After an error nothing of what was appended may be used.
func (m *Mask) Append(dst []byte, value jsontext.Value) ([]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(value))
	dst, err := appendMasked(dst, dec, m.rules)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return dst, nil
}

// appendMasked copies the next value; rules are those that lead here, as far as
// they go on from here.
func appendMasked(dst []byte, dec *jsontext.Decoder, rules [][]string) ([]byte, error) {
	for _, rule := range rules {
		if len(rule) == 0 {
			return append(dst, `"`+Blank+`"`...), dec.SkipValue()
		}
	}
	kind := dec.PeekKind()
	if kind != '{' && kind != '[' {
		value, err := dec.ReadValue()
		return append(dst, value...), err
	}
	if len(rules) == 0 {
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		return jsontext.AppendFormat(dst, value, jsontext.AllowDuplicateNames(false))
	}
	return appendMembers(dst, dec, rules)
}

func appendMembers(dst []byte, dec *jsontext.Decoder, rules [][]string) ([]byte, error) {
	open, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	object := open.Kind() == '{'
	dst = append(dst, byte(open.Kind()))
	for i := 0; ; i++ {
		if kind := dec.PeekKind(); kind == '}' || kind == ']' {
			_, err := dec.ReadToken()
			return append(dst, byte(kind)), err
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		key := fmt.Sprint(i)
		if object {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			key = name.String()
			if dst, err = jsontext.AppendQuote(dst, key); err != nil {
				return nil, err
			}
			dst = append(dst, ':')
		}
		if dst, err = appendMasked(dst, dec, below(rules, key)); err != nil {
			return nil, err
		}
	}
}

// below are the rules that go on under a key.
func below(rules [][]string, key string) [][]string {
	var out [][]string
	for _, rule := range rules {
		if rule[0] == "*" || strings.EqualFold(rule[0], key) {
			out = append(out, rule[1:])
		}
	}
	return out
}
