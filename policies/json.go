package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// ErrArguments says that a caller's arguments hold more than a policy is asked
// about (docs/policies.md): nothing is wrong with the gateway or the policy.
var ErrArguments = errors.New("arguments hold more than a policy is asked about")

// Most of what one JSON value may hold that a policy sees. A caller's arguments
// become some fifty times their size in memory, and comparing numbers takes as
// long as they are.
const (
	depthMost  = 100
	numberMost = 256 // characters of a number
	valuesMost = 20_000
)

// termOf reads JSON as OPA's terms, strictly and without a detour over Go maps:
// duplicate names, invalid UTF-8 and numbers that OPA cannot calculate with are
// errors. Numbers stay as they are spelled. It holds at most most values; 0: as
// many as there are.
func termOf(value jsontext.Value, most int) (*ast.Term, error) {
	r := reader{dec: jsontext.NewDecoder(bytes.NewReader(value)), left: most, counts: most > 0}
	term, err := r.term()
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return term, nil
}

type reader struct {
	dec    *jsontext.Decoder
	left   int // values, if counts
	counts bool
}

func (r *reader) term() (*ast.Term, error) {
	token, err := r.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	if r.left--; r.counts && r.left < 0 {
		return nil, fmt.Errorf("more than %d values", valuesMost)
	}
	switch token.Kind() {
	case 'n':
		return ast.InternedNullTerm, nil
	case 't', 'f':
		return ast.InternedTerm(token.Bool()), nil
	case '"':
		return ast.StringTerm(token.String()), nil
	case '0':
		return number(token.String())
	case '[':
		return r.array()
	default:
		return r.object()
	}
}

func number(spelled string) (*ast.Term, error) {
	if len(spelled) > numberMost {
		return nil, fmt.Errorf("a number of more than %d characters", numberMost)
	}
	// OPA compares numbers beyond float64 by their spelling in one place and by
	// their value in another.
	if f, err := strconv.ParseFloat(spelled, 64); err != nil || math.IsInf(f, 0) {
		return nil, errors.New("a number that is too big: beyond what a float64 holds")
	}
	n, err := ast.NumberChecked(spelled)
	if err != nil {
		return nil, err
	}
	return ast.NewTerm(n), nil
}

// deeper refuses what nests so deep that reading it would take the stack.
func (r *reader) deeper() error {
	if r.dec.StackDepth() > depthMost {
		return fmt.Errorf("nested more than %d deep", depthMost)
	}
	return nil
}

func (r *reader) array() (*ast.Term, error) {
	if err := r.deeper(); err != nil {
		return nil, err
	}
	var items []*ast.Term
	for r.dec.PeekKind() != ']' {
		item, err := r.term()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	return ast.ArrayTerm(items...), nil
}

func (r *reader) object() (*ast.Term, error) {
	if err := r.deeper(); err != nil {
		return nil, err
	}
	var members object
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		text := name.String() // before the next token takes its place
		value, err := r.term()
		if err != nil {
			return nil, err
		}
		members = append(members, [2]*ast.Term{ast.StringTerm(text), value})
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	return members.term(), nil
}
