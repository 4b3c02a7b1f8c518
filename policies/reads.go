package policies

import "github.com/open-policy-agent/opa/v1/ast"

// Reads says which parts of the input a policy can read at all, whatever it is
// asked: what is false here changes no decision. The compiled modules say it;
// what cannot be told counts as read.
type Reads struct {
	Time      bool // the decision can change while everything else stays
	Arguments bool // values of call.arguments or call.params
	Request   bool // anything of the HTTP request

	parts part
}

// readsOf finds them: each reference into input counts as far as its path is
// constant, and from there on for everything below. Imports, aliases and what
// is handed to a function are references too once they are compiled. Data
// cannot read, and no built-in function sees the input unless it is handed over.
func readsOf(compiler *ast.Compiler) Reads {
	var parts part
	for _, module := range compiler.Modules {
		ast.WalkRefs(module, func(ref ast.Ref) bool {
			if ref.HasPrefix(ast.InputRootRef) {
				parts |= partsAt(constantPath(ref[1:]))
			}
			return false
		})
	}
	return Reads{Time: parts.has(partTime), Arguments: parts.has(partArguments | partParams), Request: parts.has(partRequest), parts: parts}
}

// constantPath is how far a reference goes on whatever the input is.
func constantPath(ref ast.Ref) []string {
	var path []string
	for _, part := range ref {
		text, ok := part.Value.(ast.String)
		if !ok {
			break
		}
		path = append(path, string(text))
	}
	return path
}
