package policies

import (
	"strings"
	"testing"
)

// TestGuardsStandInSuites: a bundle's tests see the same limits as calls do,
// though OPA's own runner evaluates them.
func TestGuardsStandInSuites(t *testing.T) {
	const rules = "package policy\n\nallow if regex.match(input.call.tool, \"x\")\n"
	const tests = "package policy_test\n\nimport data.policy\n\n" +
		`test_long if not policy.allow with input as {"principal": {"kind": "a", "id": "b"}, "action": "call", "call": {"method": "m", "tool": "TOOL"}}` + "\n"
	report, err := Test(t.Context(), Bundle{Files: map[string][]byte{
		"policy.rego": []byte(rules), "policy_test.rego": []byte(strings.Replace(tests, "TOOL", strings.Repeat("a", patternMost+1), 1)),
	}})
	if err != nil || len(report.Failed) != 1 || !strings.Contains(report.Failed[0].Message, "a pattern of more than 1000 characters") {
		t.Errorf("%+v, %v", report, err)
	}
}
