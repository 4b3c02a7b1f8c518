package policies_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
)

func rego(source string) policies.Bundle {
	return policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(source)}}
}

func compile(t *testing.T, b policies.Bundle) *policies.Policy {
	t.Helper()
	p, err := policies.Compile(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answer asks again when a busy machine took the time.
func answer(t *testing.T, p *policies.Policy, in *policies.Input) (policies.Decision, error) {
	t.Helper()
	for range 50 {
		if d, err := p.Decide(t.Context(), in); !errors.Is(err, policies.ErrDeadline) {
			return d, err
		}
	}
	return p.Decide(t.Context(), in)
}

func TestWhatRulesSay(t *testing.T) {
	noRule := []policies.Denial{{Code: "no_rule", Text: "no rule of the policy allows this"}}
	denied := []policies.Denial{{Code: "late", Text: "Too late."}}
	const late = `deny contains {"code": "late", "message": "Too late."}` + "\n"
	for _, row := range []struct {
		name, rules string
		want        policies.Decision
	}{
		{"nothing", "x := 1", policies.Decision{Denials: noRule}},
		{"allow that does not hold", `allow if input.action == "x"`, policies.Decision{Denials: noRule}},
		{"allow is false", "allow := false", policies.Decision{Denials: noRule}},
		{"allow by default false", "default allow := false", policies.Decision{Denials: noRule}},
		{"a deny that does not hold", `deny contains {"code": "x", "message": "x"} if false`, policies.Decision{Denials: noRule}},
		{"deny alone", late, policies.Decision{Denials: denied}},
		{"deny and allow", late + "allow := true", policies.Decision{Denials: denied}},
		{"deny as an array", `allow := true` + "\n" + `deny := [{"code": "late", "message": "Too late."}]`, policies.Decision{Denials: denied}},
		{"deny and hide", late + "hide := true", policies.Decision{Denials: denied, Hide: true}},
		{"hide without allow", "hide := true", policies.Decision{Denials: noRule, Hide: true}},
		{"two denials", late + `deny contains {"code": "early", "message": "Too early."}`, policies.Decision{Denials: []policies.Denial{{Code: "early", Text: "Too early."}, denied[0]}}},
		{"scopes", `scopes_needed := {"b", "a"}`, policies.Decision{Denials: noRule, Scopes: []string{"a", "b"}}},
		{"allow", "allow := true", policies.Decision{Allow: true}},
		{"allow by default", "default allow := true", policies.Decision{Allow: true}},
		{"allow by two rules that agree", "allow if input.action\nallow if input.call", policies.Decision{Allow: true}},
		{"allow by else", "allow := false if { input.action == \"x\" } else := true if { input.call.tool == \"echo\" }", policies.Decision{Allow: true}},
		{"allow by a function", "allow if is_echo(input.call.tool)\nis_echo(tool) if tool == \"echo\"", policies.Decision{Allow: true}},
		{"allow and no denial", "allow := true\ndeny contains x if { some x in data.none }", policies.Decision{Allow: true}},
		{"headers and limits", "allow := true\n" + `headers := {"x-b": "1", "x-a": "2"}` + "\n" + `limits contains {"by": ["tool", "principal", "tool"], "rate": 0.5, "burst": 5}`, policies.Decision{
			Allow: true, Headers: []policies.Header{{Name: "x-a", Value: "2"}, {Name: "x-b", Value: "1"}},
			Limits: []policies.Limit{{By: []string{"principal", "tool"}, Rate: 0.5, Burst: 5}},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := answer(t, compile(t, rego("package policy\n"+row.rules+"\n")), call("tools/call", "echo"))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("got %+v\nwant %+v", got, row.want)
			}
		})
	}
	if (policies.Decision{}).Allow {
		t.Error("the zero decision allows")
	}
}

// TestWhatIsNotClearIsAnError: none of these is an allow, nor a denial.
func TestWhatIsNotClearIsAnError(t *testing.T) {
	const sprintfMany = `{sprintf("%d", [i]) | some i in numbers.range(1, N)}`
	many := func(n string) string { return strings.Replace(sprintfMany, "N", n, 1) }
	for _, row := range []struct{ name, rules, want string }{
		{"allow is a word", `allow := "yes"`, "allow is string"},
		{"allow is 1", "allow := 1", "allow is number"},
		{"allow is null", "allow := null", "allow is null"},
		{"allow is a set", "allow contains true", "allow is set"},
		{"allow is a package", "", "allow is object"},
		{"rules contradict each other", "allow if input.action\nallow := false if input.call", "conflict"},
		{"deny is true", "deny := true", "deny is boolean"},
		{"deny is a word", `deny := "no"`, "deny is string"},
		{"deny is one object", `deny := {"code": "a", "message": "b"}`, "deny is object"},
		{"deny has a word", `deny contains "no"`, "an item of deny is string"},
		{"deny has no message", `deny contains {"code": "a"}`, "an item of deny"},
		{"deny has an empty message", `deny contains {"code": "a", "message": ""}`, "an item of deny"},
		{"deny has more", `deny contains {"code": "a", "message": "b", "allow": true}`, "an item of deny"},
		{"deny has a code that is none", `deny contains {"code": "Too late", "message": "b"}`, "an item of deny"},
		{"deny has a long code", `deny contains {"code": sprintf("%065d", [1]), "message": "b"}`, "an item of deny"},
		{"deny has a number for a message", `deny contains {"code": "a", "message": 1}`, "an item of deny"},
		{"33 denials", `deny contains {"code": c, "message": "b"} if some c in ` + many("33"), "at most 32"},
		{"hide is a word", `hide := "yes"`, "hide is string"},
		{"scopes_needed is a word", `scopes_needed := "a"`, "scopes_needed is string"},
		{"scopes_needed has a number", "scopes_needed := {1}", "an item of scopes_needed"},
		{"33 scopes", "scopes_needed := " + many("33"), "at most 32"},
		{"headers is a set", `headers := {"a"}`, "headers is set"},
		{"a header's name in upper case", `headers := {"X-A": "a"}`, "not a header"},
		{"a header's name with a colon", `headers := {":path": "a"}`, "not a header"},
		{"a header's name is empty", `headers := {"": "a"}`, "not a header"},
		{"a header's value with a line end", `headers := {"x-a": "a\r\nx-b: c"}`, "not a header"},
		{"a header's value with a blank at its end", `headers := {"x-a": "a "}`, "not a header"},
		{"a header's value is empty", `headers := {"x-a": ""}`, "not a header"},
		{"a header's value is long", `headers := {"x-a": sprintf("%01025d", [1])}`, "not a header"},
		{"a header's value is a number", `headers := {"x-a": 1}`, "not a header"},
		{"17 headers", "headers := {h: h | some h in " + many("17") + "}", "at most 16"},
		{"limits is an object", `limits := {"by": ["tool"], "rate": 1, "burst": 1}`, "limits is object"},
		{"a limit by nothing", `limits contains {"by": [], "rate": 1, "burst": 1}`, "a limit is not like"},
		{"a limit by the address", `limits contains {"by": ["source"], "rate": 1, "burst": 1}`, "by holds something else"},
		{"a limit by a word", `limits contains {"by": "tool", "rate": 1, "burst": 1}`, "by is string"},
		{"a limit without a burst", `limits contains {"by": ["tool"], "rate": 1}`, "a limit is not like"},
		{"a limit with more", `limits contains {"by": ["tool"], "rate": 1, "burst": 1, "per": "hour"}`, "a limit is not like"},
		{"a rate of nothing", `limits contains {"by": ["tool"], "rate": 0, "burst": 1}`, "a limit's rate"},
		{"a rate below nothing", `limits contains {"by": ["tool"], "rate": -1, "burst": 1}`, "a limit's rate"},
		{"a rate beyond everything", `limits contains {"by": ["tool"], "rate": 1e300, "burst": 1}`, "a limit's rate"},
		{"half a burst", `limits contains {"by": ["tool"], "rate": 1, "burst": 0.5}`, "a limit's burst"},
		{"no burst", `limits contains {"by": ["tool"], "rate": 1, "burst": 0}`, "a limit's burst"},
		{"nine limits", `limits contains {"by": ["tool"], "rate": i, "burst": 1} if some i in numbers.range(1, 9)`, "at most 8"},
		{"a function fails", `allow if to_number(input.call.tool) == 1`, "eval_builtin_error"},
		{"a function fails beside an allow", "allow := true\nhide if to_number(input.call.tool) == 1", "eval_builtin_error"},
		{"division by nothing", "allow if 1 / (count(input.call.tool) - 4) == 1", "eval_builtin_error"},
		{"more data than there is time", "allow if { some a in numbers.range(1, 100000); some b in numbers.range(1, 100000); a + b < 0 }", "50 ms"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := rego("package policy\n" + row.rules + "\n")
			if row.rules == "" {
				b.Files["allow.rego"] = []byte("package policy.allow\nx := 1\n")
			}
			p := compile(t, b)
			ask := answer
			if row.want == "50 ms" {
				ask = func(t *testing.T, p *policies.Policy, in *policies.Input) (policies.Decision, error) {
					return p.Decide(t.Context(), in)
				}
			}
			got, err := ask(t, p, call("tools/call", "echo"))
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), p.Revision()) {
				t.Errorf("%+v, error %v; want one with %q and the revision", got, err, row.want)
			}
			if !reflect.DeepEqual(got, policies.Decision{}) {
				t.Errorf("an error beside %+v", got)
			}
		})
	}
}

func TestDeadlineAndContextEndAQuestion(t *testing.T) {
	endless := compile(t, rego("package policy\nallow if { some a in numbers.range(1, 100000); some b in numbers.range(1, 100000); a + b < 0 }\n"))
	if _, err := endless.Decide(t.Context(), call("x", "")); !errors.Is(err, policies.ErrDeadline) {
		t.Errorf("endless: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	quick := compile(t, rego("package policy\nallow := true\n"))
	for range 2 { // the second would be remembered
		if d, err := quick.Decide(ctx, call("x", "")); !errors.Is(err, context.Canceled) || d.Allow {
			t.Errorf("cancelled: %+v, %v", d, err)
		}
		if d, err := answer(t, quick, call("x", "")); err != nil || !d.Allow {
			t.Errorf("not cancelled: %+v, %v", d, err)
		}
	}
}

func TestReads(t *testing.T) {
	for _, row := range []struct {
		rule string
		want policies.Reads
	}{
		{"allow := true", policies.Reads{}},
		{"allow if input.call.tool", policies.Reads{}},
		{"allow if input.time > 1", policies.Reads{Time: true}},
		{"allow if input.call.arguments.a", policies.Reads{Arguments: true}},
		{"allow if input.call.params", policies.Reads{Arguments: true}},
		{"allow if { c := input.call; c.tool }", policies.Reads{Arguments: true}},
		{"allow if { some k; input.call[k] == 1 }", policies.Reads{Arguments: true}},
		{"allow if { some k; input[k].tool }", policies.Reads{Time: true, Arguments: true, Request: true}},
		{"allow if { k := input.action; input.call[k].path }", policies.Reads{Arguments: true}},
		{"allow if input[input.action]", policies.Reads{Time: true, Arguments: true, Request: true}},
		{"allow if input.request.path", policies.Reads{Request: true}},
		{"allow if is_good(input)\nis_good(x) if x.action", policies.Reads{Time: true, Arguments: true, Request: true}},
		{"allow if { walk(input, [_, v]); v == 1 }", policies.Reads{Time: true, Arguments: true, Request: true}},
		{"allow if { some k, _ in input; k == \"x\" }", policies.Reads{Time: true, Arguments: true, Request: true}},
		{"allow := true if true else := false if input.time", policies.Reads{Time: true}},
		{"default allow := false\nallow if input.request.headers", policies.Reads{Request: true}},
	} {
		got := compile(t, rego("package policy\n"+row.rule+"\n")).Reads()
		if got.Time != row.want.Time || got.Arguments != row.want.Arguments || got.Request != row.want.Request {
			t.Errorf("%s reads %+v", row.rule, got)
		}
	}
}
