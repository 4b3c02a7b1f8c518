package policies

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// Reads says which parts of the input a policy can read at all, whatever it is
// asked: what is false here changes no decision.
type Reads struct {
	Time      bool // the decision can change while everything else stays
	Arguments bool // values of call.arguments or call.params
	Request   bool // anything of the HTTP request
}

// readsOf finds them in the compiled modules: each reference into input counts
// as far as its path is constant, and from there on for everything below.
func readsOf(compiler *ast.Compiler) Reads {
	var reads Reads
	for _, module := range compiler.Modules {
		ast.WalkRefs(module, func(ref ast.Ref) bool {
			if ref.HasPrefix(ast.InputRootRef) {
				reads.note(constantPath(ref[1:]))
			}
			return false
		})
	}
	return reads
}

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

// note adds one path; a path reads everything below its end.
func (r *Reads) note(path []string) {
	covers := func(want ...string) bool {
		for i, part := range want {
			if i == len(path) {
				return true
			}
			if path[i] != part {
				return false
			}
		}
		return true
	}
	r.Time = r.Time || covers("time")
	r.Request = r.Request || covers("request")
	r.Arguments = r.Arguments || covers("call", "arguments") || covers("call", "params")
}
