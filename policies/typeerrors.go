package policies

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// indexed are the functions that OPA's rule index answers by itself, and how
// many operands they have. The index takes a value of a wrong type for one that
// does not match, and leaves the rule out: a deny would be silent where the
// function would have been an error. So they are compiled as if their result
// were wanted, which the index does not look at.
var indexed = map[string]int{
	"startswith": 2, "endswith": 2, "strings.any_prefix_match": 2, "strings.any_suffix_match": 2, "glob.match": 3,
}

// keepTypeErrors is a stage of the compiler, after the checks of the source.
var keepTypeErrors = ast.CompilerStageDefinition{
	Name: "KeepTypeErrors", MetricName: "compile_stage_keep_type_errors",
	Stage: func(c *ast.Compiler) *ast.Error {
		for _, module := range c.Modules {
			ast.WalkExprs(module, func(e *ast.Expr) bool {
				terms, isCall := e.Terms.([]*ast.Term)
				if isCall && e.IsCall() && indexed[e.Operator().String()] == len(terms)-1 && len(terms) > 1 {
					e.Terms = append(terms, ast.BooleanTerm(true))
				}
				return false
			})
		}
		return nil
	},
}
