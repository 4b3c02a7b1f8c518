package policies

import "github.com/open-policy-agent/opa/v1/ast"

// Most of what Rego may hold: OPA's compiler takes a time that grows with the
// square of some of them, and cannot be interrupted. What is larger is data.
const (
	regoMost  = 1 << 20 // bytes of all modules
	rulesMost = 5000    // of all modules
	bodyMost  = 500     // expressions in one body
	itemsMost = 5000    // items of one literal
	nestMost  = 100     // terms, or elses, in each other
)

// small refuses a module that is too much for the compiler.
func small(module *ast.Module) error {
	var err error
	depth := 0
	tooMuch := func(at *ast.Location, format string, most int) {
		if err == nil && at != nil {
			err = refuse(at.File, at.Row, format, most)
		}
	}
	enter := func(x any) bool {
		switch x := x.(type) {
		case *ast.Rule:
			depth++
		case ast.Body:
			if len(x) > bodyMost {
				tooMuch(x.Loc(), "a body of more than %d expressions", bodyMost)
			}
		case *ast.Term:
			if depth++; depth > nestMost {
				tooMuch(x.Location, "nested more than %d deep", nestMost)
			}
			if items(x.Value) > itemsMost {
				tooMuch(x.Location, "a literal of more than %d items: keep it in data.json", itemsMost)
			}
		}
		return err != nil
	}
	leave := func(x any) {
		switch x.(type) {
		case *ast.Rule, *ast.Term:
			depth--
		}
	}
	ast.NewBeforeAfterVisitor(enter, leave).Walk(module)
	return err
}

func items(value ast.Value) int {
	switch value := value.(type) {
	case *ast.Array:
		return value.Len()
	case ast.Set:
		return value.Len()
	case ast.Object:
		return value.Len()
	case ast.Ref:
		return len(value)
	}
	return 0
}
