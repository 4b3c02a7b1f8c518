package policies

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"pgregory.net/rapid"
)

// TestIndexStaysWhereNoTypeIsWrong: what is a string whenever it is there can be
// looked up by its prefix. Whatever else may stand there is not.
func TestIndexStaysWhereNoTypeIsWrong(t *testing.T) {
	for _, row := range []struct {
		rules   string
		indexed bool
	}{
		{`allow if startswith(input.call.tool, "a")`, true},
		{`allow if endswith(input.principal.id, "a")`, true},
		{`allow if { tool := input.call.tool; startswith(tool, "a") }`, true},
		{`allow if strings.any_prefix_match(input.call.resource, ["a", "b"])`, true},
		{`allow if strings.any_suffix_match(input.call.resource, {"a", "b"})`, true},
		{`allow if startswith(input.call.arguments.a, "a")`, false},
		{`allow if startswith(input.call.params, "a")`, false},
		{`allow if startswith(input.principal.claims.sub, "a")`, false},
		{`allow if startswith(input.server.data.a, "a")`, false},
		{`allow if startswith(input.server.grants[0].tools[0], "a")`, false},
		{`allow if { some key in ["tool"]; startswith(input.call[key], "a") }`, false},
		{`allow if { call := input.call; startswith(call.tool, "a") }`, false},
		{`allow if f(input.call.tool)
f(x) if startswith(x, "a")`, false},
		{`allow if startswith(input.call.tool, data.prefix)`, false},
		{`allow if startswith(input.call.tool, input.call.arguments.a)`, false},
		{`allow if strings.any_prefix_match(input.call.tool, [input.call.arguments.a])`, false},
		{`allow if startswith("a", input.call.tool)`, false},
		{`allow if glob.match("a*", ["/"], input.call.tool)`, false},
		{`allow if { x = input.call.arguments.a; startswith(x, "a"); x = input.call.tool }`, false},
		{`allow if { not x(input.call.arguments.a); startswith(input.call.tool, "a") }
x(y) if y == input.call.tool`, true},
		{`allow if b with input.call.tool as input.call.arguments.a
b if startswith(input.call.tool, "a")`, false},
		{`allow if b with input as input.call.arguments
b if startswith(input.call.tool, "a")`, false},
		{`allow if b with startswith as f
f(_, _) := true
b if startswith(input.call.tool, "a")`, false},
		{`allow if b with data.x as 1
b if startswith(input.call.tool, "a")`, true},
	} {
		p := compiled(t, Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\n" + row.rules + "\n")}})
		kept := false
		ast.WalkExprs(p.compiler.Modules["policy.rego"], func(e *ast.Expr) bool {
			kept = kept || indexedCall(e) != nil
			return false
		})
		if kept != row.indexed {
			t.Errorf("%s: looked up by an index is %v", row.rules, kept)
		}
	}
}

// TestStringsAreStrings: what typeerrors.go takes for a string is one in every
// input, and there are some.
func TestStringsAreStrings(t *testing.T) {
	schema, err := inputType()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		term, err := anyInput(t).term(&Reads{parts: everyPart})
		if err != nil {
			t.Fatalf("%v", err)
		}
		var walk func(ref ast.Ref, value *ast.Term)
		walk = func(ref ast.Ref, value *ast.Term) {
			if schema.isString(ref) {
				found++
				if _, is := value.Value.(ast.String); !is {
					t.Fatalf("%v is %v", ref, value)
				}
			}
			if object, is := value.Value.(ast.Object); is {
				object.Foreach(func(name, member *ast.Term) { walk(ref.Append(name), member) })
			}
		}
		walk(ast.InputRootRef, term)
	})
	if found == 0 {
		t.Error("nothing is a string")
	}
}

// TestIndexAndEvaluationAgreeOnStrings: where the index may answer, it says the
// same as the rules do one by one, errors among it. (Without a tool no rule here
// can hold, and the index may say so before another part of it fails.)
func TestIndexAndEvaluationAgreeOnStrings(t *testing.T) {
	for _, match := range []string{
		`startswith(V, "a")`, `endswith(V, "b")`, `startswith(V, "")`, `startswith(V, "a\\")`, `startswith(V, "é")`,
		`strings.any_prefix_match(V, ["a", "é"])`, `strings.any_suffix_match(V, {"b", "\\"})`, `startswith(V, "a"); endswith(V, "b")`,
	} {
		for _, where := range []string{
			`M`, `v := V; M`, `v = input.call.arguments.x; v = V; M`, `v = input.call.arguments.x; M; v = V`, `V == input.call.arguments.x; M`,
		} {
			body := strings.ReplaceAll(where, "M", match)
			if strings.HasPrefix(where, "v ") {
				body = strings.ReplaceAll(where, "M", strings.ReplaceAll(match, "V", "v"))
			}
			body = strings.ReplaceAll(body, "V", "input.call.tool")
			p := compiled(t, Bundle{Files: map[string][]byte{"policy.rego": []byte(indexedHead + "deny contains reason if { " + body + " }\n")}})
			for _, tool := range []string{"a", "b", "ab", "a\\b", "é", "\xff", "x"} {
				for _, x := range sentValues {
					in := &Input{Action: ActionCall, Call: &Call{Method: "m", Tool: tool, Arguments: jsontext.Value(`{"x":` + x + `}`)}}
					got, failed := p.evaluate(t.Context(), in)
					answer, err := p.run(t.Context(), in, p.question, patience, everyRule{})
					if (failed == nil) != (err == nil) || err == nil && got.Allow != allows(answer) {
						t.Fatalf("%s of %q and %s: %+v, %v; without an index %v, %v", body, tool, x, got, failed, answer, err)
					}
				}
			}
		}
	}
}
