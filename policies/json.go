package policies

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// termOf reads JSON as OPA's terms: strictly, without a detour over Go maps.
// Numbers stay as they are spelled.
func termOf(value jsontext.Value) (*ast.Term, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	term, err := readTerm(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return term, nil
}

func readTerm(dec *jsontext.Decoder) (*ast.Term, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case 'n':
		return ast.InternedNullTerm, nil
	case 't', 'f':
		return ast.InternedTerm(token.Bool()), nil
	case '"':
		return ast.StringTerm(token.String()), nil
	case '0':
		return ast.NewTerm(ast.Number(token.String())), nil
	case '[':
		return readArray(dec)
	default:
		return readObject(dec)
	}
}

func readArray(dec *jsontext.Decoder) (*ast.Term, error) {
	var items []*ast.Term
	for dec.PeekKind() != ']' {
		item, err := readTerm(dec)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	return ast.ArrayTerm(items...), nil
}

func readObject(dec *jsontext.Decoder) (*ast.Term, error) {
	var members object
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		text := name.String()
		value, err := readTerm(dec)
		if err != nil {
			return nil, err
		}
		members = append(members, [2]*ast.Term{ast.StringTerm(text), value})
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	return members.term(), nil
}
