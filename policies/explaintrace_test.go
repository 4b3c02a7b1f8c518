package policies

import (
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// The compiler leaves none of these: it gives each reference an expression of
// its own. What it would leave one day has to be seen all the same.
func TestAsksForArguments(t *testing.T) {
	for text, want := range map[string]bool{
		`data.table[input.call.arguments.x]`: true,
		`input.principal[input.call.params]`: true,
		`{"a": [input.call.arguments]}`:      true,
		`{x | x := input.call[_]}`:           true,
		`data.table[input.call.tool]`:        false,
		`data.input.call.arguments`:          false,
		`"input.call.arguments"`:             false,
	} {
		if got := asksForArguments(ast.MustParseTerm(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if !asksForArguments(ast.NewExpr(ast.NewTerm(ast.Var("input")))) {
		t.Error("input alone does not ask for the arguments")
	}
	seen := newTrace(true)
	seen.enter(ast.MustParseModule("package policy\n\nwho := input.call.arguments.x").Rules[0], 1)
	if seen.touched == nil || seen.touched.Line != 3 {
		t.Errorf("a rule's head: %v", seen.touched)
	}
}
