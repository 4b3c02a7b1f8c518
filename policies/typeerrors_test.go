package policies_test

import "testing"

// TestTypeErrorsInDenyAreErrors: with a value of a wrong type a denial could not
// be made, so nobody may be let in. OPA's rule index would leave the rule out.
func TestTypeErrorsInDenyAreErrors(t *testing.T) {
	for _, condition := range []string{
		`startswith(input.call.arguments.path, "/etc")`,
		`endswith(input.call.arguments.path, ".env")`,
		`strings.any_prefix_match(input.call.arguments.path, {"/etc", "/root"})`,
		`strings.any_suffix_match(input.call.arguments.path, [".env", ".key"])`,
		`glob.match("/etc/*", ["/"], input.call.arguments.path)`,
		`path := input.call.arguments.path; startswith(path, "/etc")`,
		`below(input.call.arguments.path)`,
		`some p in {"/etc"}; startswith(input.call.arguments.path, p)`,
		`contains(input.call.arguments.path, "etc")`,
	} {
		t.Run(condition, func(t *testing.T) {
			p := mustCompile(t, "policy.rego", `package policy
allow if true
deny contains {"code": "not_there", "message": "not there"} if { `+condition+` }
below(path) if startswith(path, "/etc")
also if below(input.call.arguments.path)
`)
			for _, row := range []struct {
				path  string
				allow bool
				fails bool
			}{
				{`"/home"`, true, false},
				{`17`, false, true},
				{`{"a": 1}`, false, true},
				{`null`, false, true},
			} {
				in := callOf("read", `{"path": `+row.path+`}`)
				d, err := answer(t, p, in)
				if d.Allow != row.allow || (err != nil) != row.fails {
					t.Errorf("path %s: allow %v, error %v", row.path, d.Allow, err)
				}
			}
		})
	}
}
