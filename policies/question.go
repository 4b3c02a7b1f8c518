package policies

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

//go:embed decision.rego
var decisionSource string

const decisionFile = "arbiter/decision.rego" // named in faults; no bundle's file is

// members are what decision.rego collects of data.policy.
var members = []string{"allow", "deny", "hide", "scopes_needed", "headers", "limits"}

// question is data.arbiter.decision as one query of its members: OPA takes 10 us
// to put the object together. It always has an answer; a member that may be
// undefined is asked for in brackets, as the value or nothing.
func question(compiler *ast.Compiler) (ast.Body, error) {
	var parts []string
	for _, name := range members {
		rules := compiler.RuleTree.Find(ast.MustParseRef("data.policy." + name))
		switch {
		case rules == nil && name != "allow": // the policy never says it
		case alwaysDefined(rules):
			parts = append(parts, fmt.Sprintf("%s = data.policy.%s", name, name))
		default:
			parts = append(parts, fmt.Sprintf("%s%s = [said | said = data.policy.%s]", maybe, name, name))
		}
	}
	body, err := compiler.QueryCompiler().Compile(ast.MustParseBody(strings.Join(parts, "; ")))
	if err != nil {
		return nil, fmt.Errorf("compiling the question: %w", err)
	}
	return body, nil
}

// maybe begins the names of what was asked for in brackets.
const maybe = "maybe_"

// alwaysDefined reports whether rules make a set, or have a default.
func alwaysDefined(rules *ast.TreeNode) bool {
	if rules == nil || len(rules.Children) > 0 {
		return false
	}
	for _, rule := range rules.Values {
		if len(rule.Head.Reference) != 1 || len(rule.Head.Args) > 0 {
			return false
		}
		if rule.Default || rule.Head.RuleKind() == ast.MultiValue {
			return true
		}
	}
	return false
}

// said is the answer to the question.
type said topdown.QueryResult

// member is what a rule said, nil when it said nothing.
func (s said) member(name string) ast.Value {
	if term := s[ast.Var(name)]; term != nil {
		return term.Value
	}
	if term := s[ast.Var(maybe+name)]; term != nil {
		if list, ok := term.Value.(*ast.Array); ok && list.Len() == 1 {
			return list.Elem(0).Value
		}
	}
	return nil
}
