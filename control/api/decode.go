package api

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// decode reads a body strictly: one JSON object in UTF-8, no key twice, no key
// that into does not have. A fault names the field and never repeats a value,
// which may be a secret.
func decode(body []byte, into any) error {
	if jsontext.Value(body).Kind() != '{' {
		return &failure{status: http.StatusBadRequest, detail: "the body must be a JSON object"}
	}
	err := json.Unmarshal(body, into, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	var found faults
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		found.add(fieldOf(semantic.JSONPointer), "%s", semanticDetail(semantic))
		return found.err()
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		found.add(fieldOf(syntactic.JSONPointer), "given twice")
		return found.err()
	}
	return &failure{status: http.StatusBadRequest, detail: "the body is not JSON (RFC 8259) in UTF-8"}
}

func semanticDetail(e *json.SemanticError) string {
	if errors.Is(e.Err, json.ErrUnknownName) {
		return "not a field of this"
	}
	switch {
	case e.GoType == nil:
		return "has the wrong form"
	case e.GoType == reflect.TypeFor[time.Time]():
		return "must be a time like 2027-01-31T12:00:00Z (RFC 3339)"
	}
	switch e.GoType.Kind() {
	case reflect.String:
		return "must be a string"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Int, reflect.Int64:
		return "must be an integer"
	case reflect.Slice:
		return "must be an array"
	default:
		return "must be an object"
	}
}

// fieldOf turns the pointer "/limits/max_body" into "limits.max_body".
func fieldOf(p jsontext.Pointer) string {
	var parts []string
	for part := range p.Tokens() {
		parts = append(parts, shorten(part))
	}
	return strings.Join(parts, ".")
}

// optional is a field of a request that may be absent (keep it), null (back to
// its default; RFC 7396) or a value.
type optional[T any] struct {
	given bool
	null  bool
	value T
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (o *optional[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	o.given = true
	if dec.PeekKind() == 'n' {
		o.null = true
		return dec.SkipValue()
	}
	return json.UnmarshalDecode(dec, &o.value)
}

// there reports whether there is a value.
func (o optional[T]) there() bool { return o.given && !o.null }

// into sets what was given; null sets byDefault.
func (o optional[T]) into(field *T, byDefault T) {
	switch {
	case o.null:
		*field = byDefault
	case o.given:
		*field = o.value
	}
}
