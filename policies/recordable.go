package policies

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// CodeNotRecorded is the code of a denial whose own might hold an argument's
// value.
const CodeNotRecorded = "not_recorded"

// Recordable is what a decision record may hold of a decision. The value of an
// argument is in no record, and a policy that reads arguments can put one into
// whatever it says: of such a policy only texts are left that stand as they are
// in its source. Of headers only names are left.
func (p *Policy) Recordable(d Decision) Decision {
	d.Headers = withoutValues(d.Headers)
	if !p.reads.Arguments {
		return d
	}
	var denials []Denial
	for _, one := range d.Denials {
		if !p.texts[one.Code] {
			one.Code = CodeNotRecorded
		}
		if !p.texts[one.Text] && one.Text != textNoRule {
			one.Text = ""
		}
		denials = append(denials, one)
	}
	d.Denials = denials
	d.Scopes = p.literal(d.Scopes)
	var headers []Header
	for _, header := range d.Headers {
		if p.texts[header.Name] {
			headers = append(headers, header)
		}
	}
	d.Headers = headers
	return d
}

// literal are the texts that stand in the source.
func (p *Policy) literal(texts []string) []string {
	var out []string
	for _, text := range texts {
		if p.texts[text] {
			out = append(out, text)
		}
	}
	return out
}

func withoutValues(headers []Header) []Header {
	var out []Header
	for _, header := range headers {
		out = append(out, Header{Name: header.Name})
	}
	return out
}

// textsOf are the strings that stand in a policy's source.
func textsOf(compiler *ast.Compiler) map[string]bool {
	texts := map[string]bool{CodeNoRule: true}
	for _, module := range compiler.Modules {
		ast.WalkTerms(module, func(term *ast.Term) bool {
			if text, ok := term.Value.(ast.String); ok {
				texts[string(text)] = true
			}
			return false
		})
	}
	return texts
}

// told is a fault as logs and records may have it. A builtin function says what
// it was given, and rules that contradict each other what they said, which may
// be an argument's value: it is left out.
func told(err error) error {
	fault := &topdown.Error{}
	if !errors.As(err, &fault) || fault.Code == topdown.CancelErr {
		return err
	}
	what := withoutGiven(fault)
	if fault.Location == nil {
		return fmt.Errorf("%s: %s", fault.Code, what)
	}
	return fmt.Errorf("%s:%d: %s: %s", fault.Location.File, fault.Location.Row, fault.Code, what)
}

// withoutGiven is what OPA says of a fault, as far as no value stands in it.
func withoutGiven(fault *topdown.Error) string {
	what, _, _ := strings.Cut(fault.Message, ":")
	if fault.Code == topdown.BuiltinErr {
		what += " failed"
	}
	return what
}
