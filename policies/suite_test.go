package policies_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
)

func bundleOf(files ...string) policies.Bundle {
	out := policies.Bundle{Files: map[string][]byte{}}
	for i := 0; i < len(files); i += 2 {
		out.Files[files[i]] = []byte(files[i+1])
	}
	return out
}

const suitePolicy = `package policy

allow if input.action == "call"

deny contains {"code": "late", "message": "it is late"} if number > 3

number := to_number(input.principal.name)
`

func TestTestsOfTheStandardPolicy(t *testing.T) {
	report, err := policies.Test(t.Context(), policies.Standard())
	if err != nil || report.Err() != nil || len(report.Passed) < 7 {
		t.Fatalf("passed %d, failed %v, %v", len(report.Passed), report.Failed, err)
	}
	covered, err := policies.Cover(t.Context(), policies.Standard())
	if err != nil || covered.Coverage == nil || covered.Coverage.Percent < 50 || covered.Coverage.Percent > 100 {
		t.Errorf("covered %+v, %v", covered.Coverage, err)
	}
}

func TestTest(t *testing.T) {
	for _, test := range []struct {
		name, rules string
		passed      []string
		failed      map[string]string // name to a part of its message
		output      string
	}{
		{"one passes", "test_allow if policy.allow with input.action as \"call\"", []string{"test_allow"}, nil, ""},
		{"one fails", "test_allow if {\n\tpolicy.deny == set()\n\tpolicy.allow with input.action as \"list_item\"\n}", nil, map[string]string{"test_allow": `line 7 does not hold: policy.allow with input.action as "list_item"`}, ""},
		{"a value that is false", "test_allow := false", nil, map[string]string{"test_allow": "line 5 does not hold: test_allow := false"}, ""},
		{"a value that is no truth", "test_allow := 1", nil, map[string]string{"test_allow": "not true"}, ""},
		{"announced", "todo_test_allow if policy.allow", nil, map[string]string{"todo_test_allow": "only announced"}, ""},
		{"a fault of a built-in function", "test_deny if count(policy.deny) == 0 with input.principal.name as \"x\"", nil, map[string]string{"test_deny": "to_number"}, ""},
		{"cases", "test_cases[c.name] if {\n\tsome c in [{\"name\": \"one\", \"v\": 1}, {\"name\": \"two\", \"v\": 2}]\n\tc.v == 1\n}", nil, map[string]string{"test_cases": "these cases fail: two"}, ""},
		{"it prints", "test_allow if {\n\tprint(\"looking\")\n\tpolicy.allow with input.action as \"call\"\n}", []string{"test_allow"}, nil, "looking"},
		{"two of one name", "test_allow if true\n\ntest_allow if policy.allow with input.action as \"x\"", []string{"test_allow"}, map[string]string{"test_allow#01": "not true"}, ""},
		{"the question itself", "test_decision if data.arbiter.decision.allow with input.action as \"call\"", []string{"test_decision"}, nil, ""},
		{"no test", "helper := 1", nil, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			report, err := policies.Test(t.Context(), bundleOf("policy.rego", suitePolicy, "policy_test.rego", "package policy_test\n\nimport data.policy\n\n"+test.rules+"\n\nuses := policy.number\n"))
			if err != nil {
				t.Fatal(err)
			}
			var passed []string
			for _, one := range report.Passed {
				passed = append(passed, one.Name)
				if strings.TrimSpace(one.Output) != test.output {
					t.Errorf("%s printed %q", one.Name, one.Output)
				}
			}
			if !slices.Equal(passed, test.passed) || len(report.Failed) != len(test.failed) || (report.Err() == nil) != (len(test.failed) == 0) {
				t.Errorf("passed %v, failed %+v", passed, report.Failed)
			}
			for _, one := range report.Failed {
				want, expected := test.failed[one.Name]
				if !expected || !strings.Contains(one.Message, want) || one.File != "policy_test.rego" || one.Line < 5 || one.Package != "data.policy_test" {
					t.Errorf("failed %+v", one)
				}
			}
		})
	}
}

// What the evaluator does not allow, no test may use either.
func TestTestRefuses(t *testing.T) {
	for _, test := range []struct{ name, tests, want string }{
		{"the network", "package policy_test\n\ntest_x if http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"})\n", "undefined function http.send"},
		{"the clock", "package policy_test\n\ntest_x if time.now_ns() > 0\n", "undefined function time.now_ns"},
		{"a variable without use", "package policy_test\n\ntest_x if {\n\tx := 1\n\ttrue\n}\n", "x"},
		{"input that there is not", "package policy_test\n\ntest_x if input.nobody\n", "input.nobody"},
		{"another package", "package elsewhere\n\ntest_x if true\n", "package elsewhere"},
		{"a line that is no Rego", "package policy_test\n\ntest_x if {\n", "policy_test.rego"},
	} {
		t.Run(test.name, func(t *testing.T) {
			report, err := policies.Test(t.Context(), bundleOf("policy.rego", suitePolicy, "policy_test.rego", test.tests))
			bad, ok := errors.AsType[*policies.BundleError](err)
			if !ok || !strings.Contains(bad.Error(), test.want) || bad.Faults[0].File != "policy_test.rego" || bad.Faults[0].Line == 0 {
				t.Errorf("%+v, %v; want %q", report, err, test.want)
			}
		})
	}
}

func TestTestRefusesWhatCompileRefuses(t *testing.T) {
	for _, b := range []policies.Bundle{
		{}, bundleOf("../policy.rego", suitePolicy), bundleOf("policy.rego", suitePolicy, "data.json", "[]"), bundleOf("policy.rego", suitePolicy, "data.json", `{"policy":{}}`),
	} {
		_, want := policies.Compile(t.Context(), b)
		if _, err := policies.Test(t.Context(), b); want == nil || err == nil || err.Error() != want.Error() {
			t.Errorf("tested with %v, compiled with %v", err, want)
		}
	}
}

func TestTestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := policies.Test(ctx, policies.Standard()); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestCoverNamesLines(t *testing.T) {
	report, err := policies.Cover(t.Context(), bundleOf("policy.rego", suitePolicy, "policy_test.rego",
		"package policy_test\n\nimport data.policy\n\ntest_allow if policy.allow with input.action as \"call\"\n"))
	if err != nil || report.Coverage == nil {
		t.Fatal(err)
	}
	if got := report.Coverage.Uncovered["policy.rego"]; !slices.Contains(got, 5) || slices.Contains(got, 3) || len(report.Coverage.Uncovered) != 1 {
		t.Errorf("lines %v", report.Coverage.Uncovered)
	}
	if report.Coverage.Percent <= 0 || report.Coverage.Percent >= 100 {
		t.Errorf("covered %v", report.Coverage.Percent)
	}
}
