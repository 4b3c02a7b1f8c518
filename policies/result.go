package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Decision is the answer. The zero Decision denies.
type Decision struct {
	Allow   bool
	Denials []Denial // in the order of their codes; why it is denied. At least one without Allow
	Hide    bool     // the caller may not even know that there is such a thing
	Scopes  []string // that would have helped, sorted
	Headers []Header // for the upstream, sorted by name
	Limits  []Limit  // of which each holds
}

// Denial is one reason.
type Denial struct {
	Code string // stable, [a-z0-9_]{1,64}
	Text string // a sentence for the caller, printable
}

// Limit bounds how often something may be done, per replica.
type Limit struct {
	By    []string // of principal, server and tool: what shares one bucket; sorted
	Rate  float64  // per second
	Burst int      // at once
}

// CodeNoRule is the denial when no rule says allow and none says deny.
const CodeNoRule = "no_rule"

const textNoRule = "no rule of the policy allows this"

// Most of what a decision may hold.
const (
	denialsMost = 32
	textMost    = 500 // characters of a denial's text
	scopesMost  = 32
	scopeMost   = 256 // bytes; a longer one is nobody's and is left out
	headersMost = 16
	headerMost  = 1024 // bytes of a value
	limitsMost  = 8
)

// answer is what the rules said, by name: a value, or nil.
type answer func(name string) ast.Value

// answerOf is that of data.arbiter.decision.
func answerOf(o ast.Object) answer {
	return func(name string) ast.Value { return member(o, name) }
}

// read judges what the rules said. It allows when allow is true and nothing is
// denied; everything of a wrong type is an error.
func read(answer answer) (Decision, error) {
	var d Decision
	allow, err := truth("allow", answer("allow"))
	if err != nil {
		return Decision{}, err
	}
	if d.Hide, err = truth("hide", answer("hide")); err != nil {
		return Decision{}, err
	}
	if d.Denials, err = denials(answer("deny")); err != nil {
		return Decision{}, err
	}
	if d.Scopes, err = scopes(answer("scopes_needed")); err != nil {
		return Decision{}, err
	}
	if d.Headers, err = headers(answer("headers")); err != nil {
		return Decision{}, err
	}
	if d.Limits, err = limits(answer("limits")); err != nil {
		return Decision{}, err
	}
	if !allow && len(d.Denials) == 0 {
		d.Denials = []Denial{{Code: CodeNoRule, Text: textNoRule}}
	}
	d.Allow = allow && len(d.Denials) == 0
	return d, nil
}

// member is a member of an object, nil when it is not there.
func member(o ast.Object, name string) ast.Value {
	if term := o.Get(ast.InternedTerm(name)); term != nil {
		return term.Value
	}
	return nil
}

func wrong(name string, value ast.Value, want string) error {
	return fmt.Errorf("%s is %s instead of %s", name, ast.ValueName(value), want)
}

func truth(name string, value ast.Value) (bool, error) {
	if value == nil {
		return false, nil
	}
	b, ok := value.(ast.Boolean)
	if !ok {
		return false, wrong(name, value, "true or false")
	}
	return bool(b), nil
}

// collection reads a set, in its order, or an array.
func collection(name string, value ast.Value, most int) ([]*ast.Term, error) {
	var items []*ast.Term
	switch value := value.(type) {
	case nil:
	case ast.Set:
		items = value.Slice()
	case *ast.Array:
		value.Foreach(func(term *ast.Term) { items = append(items, term) })
	default:
		return nil, wrong(name, value, "a set")
	}
	if len(items) > most {
		return nil, fmt.Errorf("%s has %d items, at most %d are taken", name, len(items), most)
	}
	return items, nil
}

func text(o ast.Object, name string) (string, bool) {
	s, ok := member(o, name).(ast.String)
	return string(s), ok
}

func denials(value ast.Value) ([]Denial, error) {
	items, err := collection("deny", value, denialsMost)
	if err != nil {
		return nil, err
	}
	var out []Denial
	for _, item := range items {
		one, ok := item.Value.(ast.Object)
		if !ok {
			return nil, wrong("an item of deny", item.Value, `an object like {"code": "too_late", "message": "..."}`)
		}
		code, isText := text(one, "code")
		message, both := text(one, "message")
		if !isText || !both || one.Len() != 2 || !isCode(code) || message == "" {
			return nil, errors.New(`an item of deny is not like {"code": "too_late", "message": "a sentence"}, its code of at most 64 of a to z, 0 to 9 and _`)
		}
		out = append(out, Denial{Code: code, Text: printable(message)})
	}
	slices.SortFunc(out, func(a, b Denial) int {
		return strings.Compare(a.Code+"\x00"+a.Text, b.Code+"\x00"+b.Text)
	})
	return out, nil
}

func isCode(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// printable shows a caller what may hold its own text: one line, no control
// character, not longer than textMost.
func printable(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if len(out) == textMost {
			return string(append(out, '…'))
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufffd' {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

func scopes(value ast.Value) ([]string, error) {
	items, err := collection("scopes_needed", value, scopesMost)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, item := range items {
		scope, ok := item.Value.(ast.String)
		if !ok {
			return nil, wrong("an item of scopes_needed", item.Value, "a string")
		}
		if len(scope) <= scopeMost {
			out = append(out, printable(string(scope)))
		}
	}
	slices.Sort(out)
	return out, nil
}
