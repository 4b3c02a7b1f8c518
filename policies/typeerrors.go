package policies

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// indexed are the functions that OPA's rule index answers by itself, and how
// many operands they have. The index takes a value of a wrong type for one that
// does not match, and leaves the rule out: a deny would be silent where the
// function would have been an error. So they are compiled as if their result
// were wanted, which the index does not look at. Only where no type can be wrong
// the index may answer: it makes a policy of many rules several times as fast.
var indexed = map[string]int{
	"startswith": 2, "endswith": 2, "strings.any_prefix_match": 2, "strings.any_suffix_match": 2, "glob.match": 3,
}

// keepTypeErrors is a stage of the compiler, after the checks of the source and
// right before the index is made.
var keepTypeErrors = ast.CompilerStageDefinition{
	Name: "KeepTypeErrors", MetricName: "compile_stage_keep_type_errors",
	Stage: func(c *ast.Compiler) *ast.Error {
		schema, err := inputType()
		if err != nil {
			return ast.NewError(ast.CompileErr, nil, "%v", err)
		}
		sound := map[*ast.Expr]bool{}
		if !replaced(c.Modules) {
			for _, module := range c.Modules {
				ast.WalkBodies(module, func(body ast.Body) bool {
					schema.sound(body, sound)
					return false
				})
			}
		}
		for _, module := range c.Modules {
			ast.WalkExprs(module, func(e *ast.Expr) bool {
				if terms := indexedCall(e); terms != nil && !sound[e] {
					e.Terms = append(terms, ast.BooleanTerm(true))
				}
				return false
			})
		}
		return nil
	},
}

// indexedCall are the terms of a call that the index would answer.
func indexedCall(e *ast.Expr) []*ast.Term {
	terms, isCall := e.Terms.([]*ast.Term)
	if isCall && e.IsCall() && len(terms) > 1 && indexed[e.Operator().String()] == len(terms)-1 {
		return terms
	}
	return nil
}

// replaced reports whether something else may stand in the place of the input,
// or of a function: then a member of the input may be of any type.
func replaced(modules map[string]*ast.Module) (found bool) {
	for _, module := range modules {
		ast.WalkWiths(module, func(w *ast.With) bool {
			target, isRef := w.Target.Value.(ast.Ref)
			found = found || !isRef || !target.HasPrefix(ast.DefaultRootRef)
			return found
		})
	}
	return found
}

// typeOf is as much of a JSON schema as says what is a string.
type typeOf struct {
	Type       string            `json:"type"`
	Properties map[string]typeOf `json:"properties"`
}

var inputType = sync.OnceValues(func() (typeOf, error) {
	var out typeOf
	if err := json.Unmarshal(InputSchema, &out); err != nil {
		return out, fmt.Errorf("reading the input's schema: %w", err)
	}
	return out, nil
})

// isString reports a reference to a member of the input that is a string
// whenever it is there. Nothing that callers or operators shape is one.
func (t typeOf) isString(ref ast.Ref) bool {
	if !ref.HasPrefix(ast.InputRootRef) {
		return false
	}
	path := constantPath(ref[1:])
	if len(path) != len(ref)-1 {
		return false
	}
	for _, name := range path {
		t = t.Properties[name]
	}
	return t.Type == "string"
}

// sound adds those calls of a body to out that cannot be of a wrong type:
//
//	__local1__ = input.call.tool; startswith(__local1__, "get_")
//
// A body is evaluated in its order: when the call is made, the variable is what
// it was made equal to before, whatever else is said of it.
func (t typeOf) sound(body ast.Body, out map[*ast.Expr]bool) {
	isString := map[ast.Var]bool{}
	for _, e := range body {
		switch terms := indexedCall(e); {
		case e.Negated || len(e.With) > 0:
		case e.IsEquality():
			t.bind(e.Operand(0), e.Operand(1), isString)
			t.bind(e.Operand(1), e.Operand(0), isString)
		case len(terms) == 3: // not glob.match, whose pattern may be wrong too
			name, isVar := terms[1].Value.(ast.Var)
			out[e] = isVar && isString[name] && stringsOnly(terms[2].Value)
		}
	}
}

// bind notes that a variable is made equal to a string.
func (t typeOf) bind(a, b *ast.Term, isString map[ast.Var]bool) {
	name, isVar := a.Value.(ast.Var)
	ref, isRef := b.Value.(ast.Ref)
	if isVar && isRef && t.isString(ref) {
		isString[name] = true
	}
}

// stringsOnly reports a string, or a list of strings, that stands in the source.
func stringsOnly(value ast.Value) bool {
	only := true
	each := func(one *ast.Term) {
		_, isString := one.Value.(ast.String)
		only = only && isString
	}
	switch value := value.(type) {
	case ast.String:
		return true
	case *ast.Array:
		value.Foreach(each)
	case ast.Set:
		value.Foreach(each)
	default:
		return false
	}
	return only
}
