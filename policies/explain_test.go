package policies_test

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/policies"
)

func mustCompile(t interface {
	Helper()
	Fatal(...any)
}, files ...string,
) *policies.Policy {
	t.Helper()
	p, err := policies.Compile(context.Background(), bundleOf(files...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func callOf(tool string, arguments string) *policies.Input {
	in := &policies.Input{Action: policies.ActionCall, Call: &policies.Call{Method: "tools/call", Tool: tool, Arguments: jsontext.Value(arguments)}}
	in.Principal.Kind, in.Principal.Subject = "access_token", "t1"
	return in
}

// told is an explanation in lines, to be read in a table.
func told(e policies.Explanation) []string {
	var out []string
	if e.Fault != nil {
		out = append(out, "fault "+e.Fault.String())
	}
	if e.NotRecorded {
		out = append(out, "not recorded "+at(*e.Touched))
	}
	for _, one := range e.Fired {
		out = append(out, "fired "+one.Rule+" "+at(one.Place))
	}
	var missing func(list []policies.Missing, indent string)
	missing = func(list []policies.Missing, indent string) {
		for _, one := range list {
			out = append(out, indent+"missing "+one.Rule+" "+one.File+":"+strconv.Itoa(one.Line)+" at "+at(one.Failed))
			missing(one.Because, indent+"  ")
		}
	}
	missing(e.Missing, "")
	return out
}

func at(p policies.Place) string { return p.File + ":" + strconv.Itoa(p.Line) + " " + p.Text }

const explained = `package policy

import data.policy.people

default allow := false

allow if {
	input.action == "call"
	some name in ["a", "b"]
	count(name) >
		3
}

allow if {
	every n in ["a", "b"] {
		n == "a"
	}
} else if {
	not input.principal.kind
}

allow if people.known

allow := input.principal.kind == "user"

allow if {
	startswith(input.call.tool, "x")
	input.call.arguments.path == "/a"
}

deny contains {"code": "late", "message": "late"} if input.call.tool == "late"

deny contains one if {
	some one in people.denied
}
`

const people = `package policy.people

known if in_team(input.principal.name)

in_team(name) if name == "ann"

denied contains {"code": "left", "message": "left"} if input.principal.name == "zoe"
`

func TestExplain(t *testing.T) {
	unmet := func(except ...string) []string {
		lines := []string{
			"missing data.policy.allow policy.rego:7 at policy.rego:10 count(name) > 3",
			`missing data.policy.allow policy.rego:14 at policy.rego:15 every n in ["a", "b"] { n == "a" }`,
			"missing data.policy.allow policy.rego:18 at policy.rego:19 not input.principal.kind",
			"missing data.policy.allow policy.rego:22 at policy.rego:22 people.known",
			"  missing data.policy.people.known people.rego:3 at people.rego:3 in_team(input.principal.name)",
			`missing data.policy.allow policy.rego:24 at policy.rego:24 input.principal.kind == "user"`,
		}
		return append(lines, except...)
	}
	prefix := `missing data.policy.allow policy.rego:26 at policy.rego:27 startswith(input.call.tool, "x")`
	for _, test := range []struct {
		name     string
		in       *policies.Input
		recorded bool
		allow    bool
		want     []string
	}{
		{"nothing holds", callOf("late1", ""), true, false, unmet(prefix)},
		{"and what was not kept is not asked for", callOf("late1", ""), false, false, unmet(prefix)},
		{"denied", callOf("late", ""), true, false, append([]string{`fired data.policy.deny policy.rego:31 deny contains {"code": "late", "message": "late"}`}, unmet(prefix)...)},
		{"other arguments", callOf("x", `{"path":"/b"}`), true, false, unmet(`missing data.policy.allow policy.rego:26 at policy.rego:28 input.call.arguments.path == "/a"`)},
		{"no arguments", callOf("x", ""), true, false, unmet(`missing data.policy.allow policy.rego:26 at policy.rego:28 input.call.arguments.path == "/a"`)},
		{"arguments that were not kept", callOf("x", ""), false, false, []string{`not recorded policy.rego:28 input.call.arguments.path == "/a"`}},
		{"arguments that are there but not to be used", callOf("x", `{"path":"/a"}`), false, false, []string{`not recorded policy.rego:28 input.call.arguments.path == "/a"`}},
		{"rules that contradict each other", callOf("x", `{"path":"/a"}`), true, false, []string{
			"fault policy.rego:26: rule data.policy.allow produced conflicting values",
			"fired data.policy.allow policy.rego:26 allow",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := mustCompile(t, "policy.rego", explained, "people.rego", people).Explain(t.Context(), test.in, test.recorded)
			if err != nil || got.Decision.Allow != test.allow || !reflect.DeepEqual(told(got), test.want) {
				t.Errorf("%v\n%s\nwant\n%s", err, strings.Join(told(got), "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestExplainMissing(t *testing.T) {
	large := "[" + strings.Repeat("1,", 30_000) + "1]"
	for _, test := range []struct {
		name, rules string
		want        []string
	}{
		{
			"the furthest expression", "allow if {\n\tsome name in [\"ab\", \"c\"]\n\tstartswith(name, \"a\")\n\tname == \"z\"\n}",
			[]string{"missing data.policy.allow policy.rego:3 at policy.rego:6 name == \"z\""},
		},
		{
			"a rule that should not hold and does", "allow if not late\n\nlate if input.action == \"call\"\n\nlate if input.action == \"list_item\"",
			[]string{"fired data.policy.late policy.rego:5 late", "missing data.policy.allow policy.rego:3 at policy.rego:3 not late"},
		},
		{
			"a rule that holds with another value", "allow if level == 2\n\nlevel := 1 if input.action == \"call\"",
			[]string{`fired data.policy.level policy.rego:5 level := 1`, "missing data.policy.allow policy.rego:3 at policy.rego:3 level == 2"},
		},
		{"no rule", "hide := true", []string{"fired data.policy.hide policy.rego:3 hide := true"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := mustCompile(t, "policy.rego", "package policy\n\n"+test.rules+"\n\nuses if input.call.arguments\n").Explain(t.Context(), callOf("x", large), false)
			if err != nil || !reflect.DeepEqual(told(got), test.want) {
				t.Errorf("%v\n%s\nwant\n%s", err, strings.Join(told(got), "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestExplainTheStandardPolicy(t *testing.T) {
	p, err := policies.Compile(t.Context(), policies.Standard())
	if err != nil {
		t.Fatal(err)
	}
	in := callOf("add", "")
	in.Principal.Narrowed, in.Principal.Scopes = true, []string{"tools:call:echo"}
	got, err := p.Explain(t.Context(), in, false)
	if err != nil || got.Decision.Allow || !reflect.DeepEqual(got.Decision.Scopes, []string{"tools:call", "tools:call:add"}) {
		t.Fatalf("%+v, %v", got.Decision, err)
	}
	lines := strings.Join(told(got), "\n")
	for _, want := range []string{
		"fired data.policy.deny " + written(t, `deny contains {"code": "scope_missing", "message": message}`),
		"missing data.policy.allow " + strings.TrimSuffix(written(t, "allow if {"), " allow if {") + " at " + written(t, "\tscopes_suffice"),
		" at " + written(t, "not input.principal.scopes"),
		" scope in sufficient_scopes\n",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, lines)
		}
	}
	in.Principal.Scopes = []string{"tools:call"}
	if got, err = p.Explain(t.Context(), in, false); err != nil || !got.Decision.Allow || got.Missing != nil || !strings.Contains(strings.Join(told(got), "\n"), "fired data.policy.allow ") {
		t.Errorf("%+v, %v", got, err)
	}
}

// written finds the line of the standard policy that text stands on.
func written(t *testing.T, text string) string {
	t.Helper()
	for i, line := range strings.Split(string(policies.Standard().Files["policy.rego"]), "\n") {
		if strings.Contains(line, text) {
			return "policy.rego:" + strconv.Itoa(i+1) + " " + strings.TrimSpace(text)
		}
	}
	t.Fatalf("the standard policy has no %q", text)
	return ""
}

func TestExplainFaults(t *testing.T) {
	for _, test := range []struct{ name, rules, want string }{
		{"a wrong type", "allow := 1", "allow is number instead of true or false"},
		{"a built-in function's fault", "allow if {\n\ttrue\n\tto_number(input.call.tool) > 1\n}", "policy.rego:5: to_number"},
		{"no end", "allow if count([1 | numbers.range(1, 100000)[_]; numbers.range(1, 100000)[_]]) == 0", "did not answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := mustCompile(t, "policy.rego", "package policy\n\n"+test.rules+"\n").Explain(t.Context(), callOf("x", ""), true)
			if err != nil || got.Fault == nil || !strings.Contains(got.Fault.String(), test.want) || got.Decision.Allow {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := mustCompile(t, "policy.rego", "package policy\n\nallow if true\n").Explain(ctx, callOf("x", ""), true); !errors.Is(err, context.Canceled) || got.Decision.Allow {
		t.Errorf("%+v, %v", got, err)
	}
}

// What OPA says of a fault may repeat an argument; logs, records and people who
// read an explanation are not told.
func TestExplanationsHoldNoArgument(t *testing.T) {
	for _, rules := range []string{
		"allow if to_number(input.call.arguments.x) > 1",
		"allow if who\n\nwho := input.call.arguments.x\n\nwho := \"b\" if input.action == \"call\"",
		"allow if f(1)\n\nf(_) := input.call.arguments.x\n\nf(_) := \"b\"",
		"allow if one.a\n\none[key] := value if some key, value in {\"a\": input.call.arguments.x}\n\none.a := 1",
		"allow if json.unmarshal(input.call.arguments.x)",
		"allow if time.parse_duration_ns(input.call.arguments.x)",
		"allow if regex.match(input.call.arguments.x, \"a\")",
		"allow := input.call.arguments.x",
	} {
		p := mustCompile(t, "policy.rego", "package policy\n\n"+rules+"\n")
		in := callOf("a", `{"x":"[canary"}`)
		_, err := p.Decide(t.Context(), in)
		why, other := p.Explain(t.Context(), in, true)
		if err == nil || other != nil || why.Fault == nil || strings.Contains(err.Error()+why.Fault.String(), "canary") {
			t.Errorf("%s: %v; %v, %v", rules, err, why.Fault, other)
		}
	}
}

// Each of these asks for the arguments in another way, or seems to.
var looks = []struct {
	expr    string
	touches bool
}{
	{`input.call.arguments.x == 1`, true},
	{`input.call.arguments`, true},
	{`not input.call.arguments.x`, true},
	{`not input.call.params`, true},
	{`input.call.params.x == 1`, true},
	{`some key; input.call[key] == {"x": 1}`, true},
	{`some key; input[key].arguments`, true},
	{`whole := input; whole.call.arguments.x == 1`, true},
	{`part := input.call; part["arguments"]`, true},
	{`object.get(input, ["call", "arguments", "x"], 0) == 1`, true},
	{`count([y | y := input.call.arguments.x]) == 0`, true},
	{`{y | y := input.call.arguments.x} == {1}`, true},
	{`every y in object.get(input.call, "arguments", {}) { y == 1 }`, true},
	{`walk(input, [["call", "arguments", "x"], 1])`, true},
	{`contains(json.marshal(input), "\"x\":1")`, true},
	{`with_one`, true},
	{`of_call(input.call)`, true},
	{`inside == 1`, true},
	{`input.principal.name == "n"; of_nobody(input.call.arguments)`, true},
	{`{"a": input.call.arguments.x}.a == 1`, true},
	{`[1, 2][input.call.arguments.x] == 2`, true},
	{`input.call.tool == "a"`, false},
	{`input.call.method == "tools/call"; input.call.tool != "a"`, false},
	{`count(input.call.tool) == 1`, false},
	{`data.table[input.call.tool] == 1`, false},
	{`every y in ["a", "b"] { y != input.principal.name }`, false},
	{`of_call({"arguments": {"x": 1}})`, false},
	{`named(input.principal.name)`, false},
}

const lookHelpers = `
with_one if whole_one with input.call.arguments as {"x": 1}

whole_one if input.call.arguments.x == 1

of_call(call) if call.arguments.x == 1

of_nobody(arguments) if not arguments.x

default inside := 0

inside := input.call.arguments.x

named(name) if name == "n"
`

func TestDecideWithout(t *testing.T) {
	for _, look := range looks {
		t.Run(look.expr, func(t *testing.T) {
			in := callOf("a", "")
			in.Principal.Name = "n"
			for _, head := range []string{"allow if {", `deny contains {"code": "x", "message": "x"} if {`} {
				p := mustCompile(t, "policy.rego", "package policy\n\n"+head+"\n\t"+look.expr+"\n}\n"+lookHelpers, "data.json", `{"table": {"a": 1}}`)
				_, known, err := p.DecideWithout(t.Context(), in)
				if err != nil || known == look.touches {
					t.Errorf("%s known %v, %v", head, known, err)
				}
				guarded := mustCompile(t, "policy.rego", "package policy\n\n"+head+"\n\tinput.call.tool == \"b\"\n\t"+look.expr+"\n}\n"+lookHelpers)
				d, known, err := guarded.DecideWithout(t.Context(), in)
				if err != nil || !known || d.Allow || d.Denials[0].Code != policies.CodeNoRule {
					t.Errorf("guarded: %+v, %v, %v", d, known, err)
				}
			}
		})
	}
}

func TestDecideWithoutRejectsFaults(t *testing.T) {
	for _, rules := range []string{
		"allow if to_number(input.principal.id) == 1\n\nallow if {\n\tinput.call.tool == \"b\"\n\tinput.call.arguments.x\n}",
		"allow := 1 if not input.principal.name\n\nallow := 2 if {\n\tinput.principal.name\n\tinput.call.arguments.x\n}",
		"allow if count([1 | numbers.range(1, 100000)[_]; numbers.range(1, 100000)[_]]) == 0\n\nallow if input.call.arguments.x",
	} {
		d, known, err := mustCompile(t, "policy.rego", "package policy\n\n"+rules+"\n").DecideWithout(t.Context(), callOf("a", ""))
		if known || d.Allow || err == nil {
			t.Errorf("%s: %+v, %v, %v", rules, d, known, err)
		}
	}
}

// What is known without the arguments is what is decided with any of them.
func TestDecideWithoutIsSound(t *testing.T) {
	values := []string{"", "null", "{}", `{"x":1}`, `{"x":2,"arguments":{"x":1}}`, `[1,{"x":1}]`, `"x"`}
	knew, depended := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		var source strings.Builder
		source.WriteString("package policy\n")
		for range rapid.IntRange(1, 4).Draw(r, "rules") {
			head := rapid.SampledFrom([]string{"allow", `deny contains {"code": "x", "message": "x"}`, "hide", `scopes_needed contains "s"`}).Draw(r, "head")
			source.WriteString("\n" + head + " if {\n")
			for range rapid.IntRange(1, 3).Draw(r, "expressions") {
				source.WriteString("\t" + rapid.SampledFrom(looks).Draw(r, "expression").expr + "\n")
			}
			source.WriteString("}\n")
		}
		p, err := policies.Compile(context.Background(), bundleOf("policy.rego", source.String()+lookHelpers, "data.json", `{"table": {"a": 1}}`))
		if err != nil {
			return // the same variable twice
		}
		in := callOf(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "tool"), "")
		in.Principal.Name = rapid.SampledFrom([]string{"", "n", "m"}).Draw(r, "name")
		without, known, err := p.DecideWithout(context.Background(), in)
		if err != nil {
			r.Fatal(err)
		}
		first := ""
		for _, value := range values {
			with := *in.Call
			with.Arguments, with.Params = jsontext.Value(value), jsontext.Value(rapid.SampledFrom(values).Draw(r, "params"))
			got, err := answer(t, p, &policies.Input{Principal: in.Principal, Action: in.Action, Call: &with})
			if known && (err != nil || !reflect.DeepEqual(got, without)) {
				r.Fatalf("%s\narguments %s: decided %+v, %v; known without: %+v", source.String(), value, got, err, without)
			}
			if now := strconv.FormatBool(got.Allow) + strconv.FormatBool(got.Hide) + strings.Join(got.Scopes, ","); first == "" {
				first = now
			} else if now != first {
				depended++
			}
		}
		if known {
			knew++
		}
	})
	if knew == 0 || depended == 0 {
		t.Errorf("known %d times, arguments changed something %d times: this shows nothing", knew, depended)
	}
}
