package policies

import (
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// A built-in function is one step: the deadline ends an evaluation before or
// after it. So those that a caller's text can keep busy take only so much of it;
// more is an error. What is left takes less than half a second, and 250 MB, at
// its worst; a policy that builds its own patterns or multiplies in a long chain
// can take more (docs/policies.md).
const (
	patternMost = 1000     // characters of a regular expression
	subjectMost = 64 << 10 // of what it is looked for in
	shiftMost   = 4096     // bits
	patchesMost = 256      // operations of a JSON patch
)

// guards are by function; a guard looks at the operands.
var guards = map[string]func(operands []*ast.Term) error{
	"regex.match":                      pattern(0),
	"regex.is_valid":                   pattern(0),
	"regex.find_n":                     pattern(0),
	"regex.find_all_string_submatch_n": pattern(0),
	"regex.split":                      pattern(0),
	"regex.template_match":             pattern(0),
	"regex.globs_match":                pattern(0),
	"regex.replace":                    pattern(1),
	"bits.lsh":                         shift,
	"json.patch":                       patches,
}

func pattern(at int) func([]*ast.Term) error {
	return func(operands []*ast.Term) error {
		for i, operand := range operands {
			text, _ := operand.Value.(ast.String)
			if most := subjectMost; len(text) > most || i == at && len(text) > patternMost {
				return fmt.Errorf("a pattern of more than %d characters, or more than %d to look in", patternMost, subjectMost)
			}
		}
		return nil
	}
}

func shift(operands []*ast.Term) error {
	if by, ok := operands[1].Value.(ast.Number); ok {
		if n, whole := by.Int(); !whole || n > shiftMost {
			return fmt.Errorf("a shift by more than %d bits", shiftMost)
		}
	}
	return nil
}

func patches(operands []*ast.Term) error {
	if list, ok := operands[1].Value.(*ast.Array); ok && list.Len() > patchesMost {
		return fmt.Errorf("more than %d operations", patchesMost)
	}
	return nil
}

// guarded puts the guards before OPA's functions, once, and before anything of
// this package looks one up: OPA has one table of them for the whole process,
// and what it is given for one query does not replace what is in it.
var guarded = sync.OnceFunc(func() {
	for name, guard := range guards {
		unguarded := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(bctx topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
			if err := guard(operands); err != nil {
				return err
			}
			return unguarded(bctx, operands, iter)
		})
	}
})
