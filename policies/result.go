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
	Limits  []Limit
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
	headersMost = 16
	headerMost  = 1024 // bytes of a value
	limitsMost  = 8
)

// read judges what the rules said. It allows when allow is true and nothing is
// denied; everything of a wrong type is an error.
func read(answer ast.Object) (Decision, error) {
	var d Decision
	allow, err := truth(answer, "allow")
	if err != nil {
		return Decision{}, err
	}
	if d.Hide, err = truth(answer, "hide"); err != nil {
		return Decision{}, err
	}
	if d.Denials, err = denials(answer); err != nil {
		return Decision{}, err
	}
	if d.Scopes, err = scopes(answer); err != nil {
		return Decision{}, err
	}
	if d.Headers, err = headers(answer); err != nil {
		return Decision{}, err
	}
	if d.Limits, err = limits(answer); err != nil {
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

func truth(o ast.Object, name string) (bool, error) {
	value := member(o, name)
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
func collection(o ast.Object, name string, most int) ([]*ast.Term, error) {
	var items []*ast.Term
	switch value := member(o, name).(type) {
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

func denials(o ast.Object) ([]Denial, error) {
	items, err := collection(o, "deny", denialsMost)
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
		if !isText || !both || one.Len() != 2 || !isCode(code) {
			return nil, errors.New(`an item of deny is not like {"code": "too_late", "message": "a sentence"}, its code of a to z, 0 to 9 and _`)
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

func scopes(o ast.Object) ([]string, error) {
	items, err := collection(o, "scopes_needed", scopesMost)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, item := range items {
		scope, ok := item.Value.(ast.String)
		if !ok {
			return nil, wrong("an item of scopes_needed", item.Value, "a string")
		}
		out = append(out, printable(string(scope)))
	}
	slices.Sort(out)
	return out, nil
}

func headers(o ast.Object) ([]Header, error) {
	value := member(o, "headers")
	if value == nil {
		return nil, nil
	}
	object, ok := value.(ast.Object)
	if !ok {
		return nil, wrong("headers", value, "an object of strings")
	}
	if object.Len() > headersMost {
		return nil, fmt.Errorf("headers has %d members, at most %d are taken", object.Len(), headersMost)
	}
	var out []Header
	err := object.Iter(func(name, value *ast.Term) error {
		n, isText := name.Value.(ast.String)
		v, both := value.Value.(ast.String)
		if !isText || !both || !isHeaderName(string(n)) || !isHeaderValue(string(v)) {
			return errors.New("a member of headers is not a header: a name in lower case and a value of at most 1024 bytes of printable ASCII")
		}
		out = append(out, Header{Name: string(n), Value: string(v)})
		return nil
	})
	slices.SortFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

func isHeaderName(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func isHeaderValue(s string) bool {
	return s != "" && len(s) <= headerMost && strings.TrimSpace(s) == s &&
		strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func limits(o ast.Object) ([]Limit, error) {
	items, err := collection(o, "limits", limitsMost)
	if err != nil {
		return nil, err
	}
	var out []Limit
	for _, item := range items {
		one, ok := item.Value.(ast.Object)
		if !ok {
			return nil, wrong("an item of limits", item.Value, `an object like {"by": ["principal"], "rate": 0.5, "burst": 5}`)
		}
		limit, err := limitOf(one)
		if err != nil {
			return nil, err
		}
		out = append(out, limit)
	}
	return out, nil
}

func limitOf(o ast.Object) (Limit, error) {
	var out Limit
	by, err := collection(o, "by", 3)
	if err != nil {
		return out, err
	}
	for _, item := range by {
		name, _ := item.Value.(ast.String)
		if !slices.Contains([]string{"principal", "server", "tool"}, string(name)) {
			return out, errors.New("a limit's by holds something else than principal, server and tool")
		}
		out.By = append(out.By, string(name))
	}
	slices.Sort(out.By)
	out.By = slices.Compact(out.By)
	rate, isRate := member(o, "rate").(ast.Number)
	burst, isBurst := member(o, "burst").(ast.Number)
	if !isRate || !isBurst || o.Len() != 3 || len(out.By) == 0 {
		return out, errors.New(`a limit is not like {"by": ["principal"], "rate": 0.5, "burst": 5}`)
	}
	var fits bool
	if out.Rate, fits = rate.Float64(); !fits || out.Rate <= 0 || out.Rate > 1e6 {
		return out, errors.New("a limit's rate is not a number above 0, per second, up to 1000000")
	}
	if out.Burst, fits = burst.Int(); !fits || out.Burst < 1 || out.Burst > 1e6 {
		return out, errors.New("a limit's burst is not a whole number from 1 to 1000000")
	}
	return out, nil
}
