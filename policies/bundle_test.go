package policies_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
)

func TestRefusedBundles(t *testing.T) {
	const good = "package policy\n\nallow := true\n"
	files := func(pairs ...string) policies.Bundle {
		b := rego(good)
		for i := 0; i < len(pairs); i += 2 {
			b.Files[pairs[i]] = []byte(pairs[i+1])
		}
		return b
	}
	for _, row := range []struct {
		name string
		b    policies.Bundle
		want policies.Fault // its message as a part of the fault's
	}{
		{"nothing", policies.Bundle{}, policies.Fault{File: "policy.rego", Message: "no Rego"}},
		{"tests only", policies.Bundle{Files: map[string][]byte{"a_test.rego": []byte("package policy_test\n")}}, policies.Fault{File: "policy.rego", Message: "no Rego"}},
		{"an empty file", files("a.rego", ""), policies.Fault{File: "a.rego", Message: "empty module"}},
		{"no Rego at all", files("a.rego", "<html>\n"), policies.Fault{File: "a.rego", Line: 1, Message: "unexpected"}},
		{"a word that is misspelled", files("a.rego", "package policy.a\n\nx if input.principle.id\n"), policies.Fault{File: "a.rego", Line: 3, Message: "principle"}},
		{"a part that the call does not have", files("a.rego", "package policy.a\nx if {\n\tinput.call.tol == \"a\"\n}\n"), policies.Fault{File: "a.rego", Line: 3, Message: "tol"}},
		{"a text compared with a number", files("a.rego", "package policy.a\nx if input.call.tool == 1\n"), policies.Fault{File: "a.rego", Line: 2, Message: "match error"}},
		{"a function that is not there", files("a.rego", "package policy.a\nx if foo(1)\n"), policies.Fault{File: "a.rego", Line: 2, Message: "foo"}},
		{"a variable that nobody uses", files("a.rego", "package policy.a\nx if { y := 1 }\n"), policies.Fault{File: "a.rego", Line: 2, Message: "unused"}},
		{"an import that nobody uses", files("a.rego", "package policy.a\nimport data.x\nx := 1\n"), policies.Fault{File: "a.rego", Line: 2, Message: "unused"}},
		{"the old Rego", files("a.rego", "package policy.a\nx { true }\n"), policies.Fault{File: "a.rego", Line: 2, Message: "if"}},
		{"recursion", files("a.rego", "package policy.a\nx if y\ny if x\n"), policies.Fault{File: "a.rego", Line: 2, Message: "recursive"}},
		{"a package outside", files("a.rego", "package other\nx := 1\n"), policies.Fault{File: "a.rego", Line: 1, Message: "package other"}},
		{"a package whose name begins so", files("a.rego", "package policyx\nx := 1\n"), policies.Fault{File: "a.rego", Line: 1, Message: "package policyx"}},
		{"a test's package in a rule's file", files("a.rego", "package policy_test\nx := 1\n"), policies.Fault{File: "a.rego", Line: 1, Message: "package policy_test"}},
		{"the question's package", files("a.rego", "package arbiter\ndecision := {\"allow\": true}\n"), policies.Fault{File: "a.rego", Line: 1, Message: "package arbiter"}},
		{"the question's package by its path", files("a.rego", "package arbiter.decision\nallow := true\n"), policies.Fault{File: "a.rego", Line: 1, Message: "package arbiter"}},
		{"the question's file", files("arbiter/decision.rego", good), policies.Fault{File: "arbiter/decision.rego", Message: "taken"}},
		{"the question imported", files("a.rego", "package policy.a\n\nimport data.arbiter\n\nx if arbiter.decision\n"), policies.Fault{File: "a.rego", Line: 3, Message: "data.arbiter"}},
		{"the question read", files("a.rego", "package policy.a\nx if data.arbiter.decision.allow\n"), policies.Fault{File: "a.rego", Line: 2, Message: "data.arbiter"}},
		{"the question replaced", files("a.rego", "package policy.a\nx if data.policy.allow with data.arbiter.decision as 1\n"), policies.Fault{File: "a.rego", Line: 2, Message: "data.arbiter"}},
		{"a path out of the bundle", files("../a.rego", good), policies.Fault{File: "../a.rego", Message: "relative path"}},
		{"a path from the root", files("/a.rego", good), policies.Fault{File: "/a.rego", Message: "relative path"}},
		{"a path in two spellings", files("a/../b.rego", good), policies.Fault{File: "a/../b.rego", Message: "relative path"}},
		{"a path that a person reads otherwise", files("p\u043elicy.rego", good), policies.Fault{File: "p\u043elicy.rego", Message: "something else in it"}},
		{"a path that is hidden", files(".a/b.rego", good), policies.Fault{File: ".a/b.rego", Message: "begin with a dot"}},
		{"a long path", files(strings.Repeat("a/", 127)+".rego", good), policies.Fault{File: strings.Repeat("a/", 127) + ".rego", Message: "more than 255 bytes"}},
		{"data for the question", files("data.json", `{"arbiter":{"decision":{"allow":true}}}`), policies.Fault{File: "data.json", Message: "data.arbiter is for rules"}},
		{"data for the policy", files("data.yaml", "policy: {allow: true}"), policies.Fault{File: "data.yaml", Message: "data.policy is for rules"}},
		{"data for the policy by a directory", files("policy/data.json", `{"allow":true}`), policies.Fault{File: "policy/data.json", Message: "data.policy is for rules"}},
		{"data twice", files("a/data.json", `{"x":1}`, "data.json", `{"a":{"x":1}}`), policies.Fault{File: "data.json", Message: "data.a.x is set by another file too"}},
		{"data in two forms", files("data.json", `{"x":{}}`, "data.yaml", "x: [1]"), policies.Fault{File: "data.yaml", Message: "data.x is set by another file too"}},
		{"data that is a list", files("data.json", `[1]`), policies.Fault{File: "data.json", Message: "array instead of an object"}},
		{"data that is cut off", files("data.json", `{"a":`), policies.Fault{File: "data.json", Message: "EOF"}},
		{"data with something behind it", files("data.json", `{} {}`), policies.Fault{File: "data.json", Message: "something follows"}},
		{"data with a key twice", files("data.json", `{"admins":["a"],"admins":["b"]}`), policies.Fault{File: "data.json", Message: "duplicate"}},
		{"data with a key twice, deep", files("data.json", `{"a":[{"x":1,"\u0078":2}]}`), policies.Fault{File: "data.json", Message: "duplicate"}},
		{"data that is not UTF-8", files("data.json", "{\"a\":\"\xff\"}"), policies.Fault{File: "data.json", Message: "UTF-8"}},
		{"data nested deep", files("data.json", strings.Repeat(`{"a":`, 1<<20)), policies.Fault{File: "data.json", Message: "nested more than"}},
		{"data with an enormous number", files("data.json", `{"a":1e99999999}`), policies.Fault{File: "data.json", Message: "too big"}},
		{"YAML with a key twice", files("data.yaml", "a: 1\na: 2\n"), policies.Fault{File: "data.yaml", Message: "already defined"}},
		{"YAML with a key twice, deep", files("data.yaml", "x:\n  - a: 1\n    a: 2\n"), policies.Fault{File: "data.yaml", Message: "already defined"}},
		{"YAML with an alias", files("data.yaml", "a: &x [1]\nb: *x\n"), policies.Fault{File: "data.yaml", Message: "line 1: anchors"}},
		{"YAML with a tag", files("data.yaml", "a: !!binary aGk=\n"), policies.Fault{File: "data.yaml", Message: "line 1: anchors"}},
		{"YAML of two documents", files("data.yaml", "a: 1\n---\nb: 2\n"), policies.Fault{File: "data.yaml", Message: "line 2: anchors"}},
		{"YAML nested deep", files("data.yaml", "a: "+strings.Repeat("[", 100_000)), policies.Fault{File: "data.yaml", Message: "nested more than"}},
		{"YAML nested deep by dashes", files("data.yaml", "a:\n "+strings.Repeat("- ", 100_000)), policies.Fault{File: "data.yaml", Message: "nested more than"}},
		{"YAML that is large", files("data.yaml", strings.Repeat("# x\n", 70_000)), policies.Fault{File: "data.yaml", Message: "use data.json"}},
		{"YAML without a number", files("data.yaml", "a: .nan\n"), policies.Fault{File: "data.yaml", Message: ""}},
		{"YAML by its other name", files("data.yml", "a: 1\n"), policies.Fault{File: "data.yml", Message: "data.json and data.yaml"}},
		{"more than a bundle holds", files("data.json", strings.Repeat(" ", policies.BundleMost)), policies.Fault{File: ".", Message: "at most 8388608"}},
		{"much Rego", files("a.rego", good+strings.Repeat("# x\n", 300_000)), policies.Fault{File: "a.rego", Message: "data.json"}},
		{"many rules", files("a.rego", manyRules(6000)), policies.Fault{File: "a.rego", Message: "more than 5000 rules"}},
		{"a long body", files("a.rego", "package policy.a\nx if {\n"+strings.Repeat("\tinput.action == \"a\"\n", 501)+"}\n"), policies.Fault{File: "a.rego", Line: 3, Message: "500 expressions"}},
		{"a long literal", files("a.rego", "package policy.a\nx := ["+strings.Repeat("1,", 5001)+"1]\n"), policies.Fault{File: "a.rego", Line: 2, Message: "5000 items"}},
		{"a deep literal", files("a.rego", "package policy.a\nx := "+strings.Repeat("[", 200)+strings.Repeat("]", 200)+"\n"), policies.Fault{File: "a.rego", Line: 2, Message: "100 deep"}},
		{"a deeper literal", files("a.rego", "package policy.a\nx := "+strings.Repeat("[", 400_000)+"\n"), policies.Fault{File: "a.rego", Line: 2, Message: "recursion"}},
		{"a long else", files("a.rego", "package policy.a\nx := 1 if input.action\n"+strings.Repeat("else := 2 if input.call\n", 200)), policies.Fault{File: "a.rego", Line: 100, Message: "100 deep"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := refused(t, row.b)
			if got.File != row.want.File || got.Line != row.want.Line || !strings.Contains(got.Message, row.want.Message) {
				t.Errorf("fault %v\nwant  %v", got, row.want)
			}
		})
	}
	many := rego(good)
	for i := range policies.FilesMost {
		many.Files[fmt.Sprint(i, ".md")] = nil
	}
	if got := refused(t, many); !strings.Contains(got.Message, "at most 1000") {
		t.Errorf("many files: %v", got)
	}
}

func manyRules(n int) string {
	var out strings.Builder
	out.WriteString("package policy.a\n")
	for i := range n {
		fmt.Fprintf(&out, "r%d := 1\n", i)
	}
	return out.String()
}

// TestFaultsAreAllTold: who mends one file wants to hear of the others too.
func TestFaultsAreAllTold(t *testing.T) {
	b := rego("package policy\nallow if input.principle\n\nx if input.cal\n")
	_, err := policies.Compile(t.Context(), b)
	var bundle *policies.BundleError
	if !errors.As(err, &bundle) || len(bundle.Faults) < 2 || !strings.Contains(err.Error(), "policy.rego:2: ") || !strings.Contains(err.Error(), "policy.rego:4: ") {
		t.Errorf("error %v", err)
	}
}

func TestTakenBundles(t *testing.T) {
	for _, row := range []struct {
		name  string
		files map[string]string
	}{
		{"a member that is a partial object", map[string]string{"policy.rego": "package policy\nallow := true\nheaders[name] := \"x\" if some name in [\"x-a\"]\n"}},
		{"a rule named decision", map[string]string{"policy.rego": "package policy\nallow if decision\ndecision := true\n"}},
		{"a package below", map[string]string{"policy.rego": "package policy\nallow if data.policy.lib.yes\n", "lib/lib.rego": "package policy.lib\nyes := true\n"}},
		{"data by directories", map[string]string{
			"policy.rego": "package policy\nallow if data.teams.red.members[_] == \"a\"\n",
			"data.json":   `{"teams":{"blue":{}}}`, "teams/red/data.yaml": "members: [a, b]\n",
		}},
		{"numbers of YAML", map[string]string{"policy.rego": "package policy\nallow if { data.a == 1; data.b == 1.5; data.c == \"x y\"; data.d == null; data.e == [true] }\n", "data.yaml": "a: 1\nb: 1.5\nc: x y\nd: null\ne:\n  - true\n"}},
		{"large numbers of JSON", map[string]string{"policy.rego": "package policy\nallow if data.a == 12345678901234567890123\n", "data.json": `{"a":12345678901234567890123}`}},
		{"tests that would not compile", map[string]string{"policy.rego": "package policy\nallow := true\n", "policy_test.rego": "package policy_test\nx if {"}},
		{"files of other kinds", map[string]string{"policy.rego": "package policy\nallow := true\n", "README.md": "x", ".manifest": "{}", "lib/users.json": "{"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := policies.Bundle{Files: map[string][]byte{}}
			for name, content := range row.files {
				b.Files[name] = []byte(content)
			}
			if d, err := answer(t, compile(t, b), call("tools/call", "echo")); err != nil || !d.Allow {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

func TestRevisionNamesTheSource(t *testing.T) {
	seen := map[string]string{}
	for name, files := range map[string]map[string][]byte{
		"nothing": {}, "one": {"a": []byte("bc")}, "moved": {"ab": []byte("c")}, "two": {"a": nil, "bc": nil}, "other": {"a": []byte("bd")},
	} {
		revision := policies.Bundle{Files: files}.Revision()
		if other, taken := seen[revision]; taken || len(revision) != 16 {
			t.Errorf("%s has the revision %s, like %q", name, revision, other)
		}
		seen[revision] = name
	}
	if p := compile(t, policies.Standard()); p.Revision() != policies.Standard().Revision() {
		t.Error("a policy has another revision than its bundle")
	}
}

// TestCompileComesBack: a control that stops, or has a limit, does not wait for
// OPA's compiler.
func TestCompileComesBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	chain := "package policy\nr0 := true\n"
	for i := range 2000 {
		chain += fmt.Sprintf("r%d if r%d\n", i+1, i)
	}
	if _, err := policies.Compile(ctx, rego(chain)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
