package policies_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/policies"
)

func ruled(t *testing.T, source string) *policies.Policy {
	t.Helper()
	p, err := policies.Compile(t.Context(), policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(source)}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRecordable(t *testing.T) {
	const readsTool, readsArguments = "package policy\nallow if input.call.tool == \"a\"\n", "package policy\nallow if input.call.arguments.a\n"
	said := policies.Decision{
		Hide: true, Scopes: []string{"canary", "tools:call"}, Headers: []policies.Header{{Name: "x-a", Value: "canary"}, {Name: "x-b", Value: "b"}},
		Denials: []policies.Denial{{Code: "ours", Text: "our sentence"}, {Code: "ours", Text: "our canary"}, {Code: "canary", Text: "our sentence"}},
		Limits:  []policies.Limit{{By: []string{"tool"}, Rate: 1, Burst: 2}},
	}
	noRule := policies.Decision{Denials: []policies.Denial{{Code: policies.CodeNoRule, Text: "no rule of the policy allows this"}}}
	known := `texts := {"ours", "our sentence", "tools:call", "x-a"}`
	for _, tt := range []struct {
		name, source string
		in, want     policies.Decision
	}{
		{"no argument is read", readsTool, said, policies.Decision{
			Hide: true, Scopes: said.Scopes, Headers: []policies.Header{{Name: "x-a"}, {Name: "x-b"}}, Denials: said.Denials, Limits: said.Limits,
		}},
		{"arguments are read", readsArguments + known, said, policies.Decision{
			Hide: true, Scopes: []string{"tools:call"}, Headers: []policies.Header{{Name: "x-a"}}, Limits: said.Limits,
			Denials: []policies.Denial{{Code: "ours", Text: "our sentence"}, {Code: "ours"}, {Code: "not_recorded", Text: "our sentence"}},
		}},
		{"no rule", readsArguments, noRule, noRule},
		{"allowed", readsArguments, policies.Decision{Allow: true}, policies.Decision{Allow: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ruled(t, tt.source).Recordable(tt.in); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
	if said.Headers[0].Value != "canary" || said.Denials[1].Text != "our canary" {
		t.Error("the decision itself was changed")
	}
}

// Faults go into logs and records: they say where, and not of which value.
func TestFaultsHoldNoArgument(t *testing.T) {
	for _, rule := range []string{
		`allow if to_number(input.call.arguments.a) > 1`,
		`allow if time.parse_rfc3339_ns(input.call.arguments.a) > 1`,
		`allow if regex.match(input.call.arguments.a, "x")`,
		`allow if json.unmarshal(input.call.arguments.a)`,
		`allow if base64.decode(input.call.arguments.a)`,
		`allow if net.cidr_contains(input.call.arguments.a, "10.0.0.1")`,
		`allow if glob.match(input.call.arguments.a, [], "x")`,
		`allow if units.parse(input.call.arguments.a)`,
		`allow := input.call.arguments.a`,
		`deny contains {"code": input.call.arguments.a, "message": "m"}`,
		`hide := input.call.arguments`,
		`limits contains input.call.arguments.a`,
		`headers[input.call.arguments.a] := "x"`,
		`headers["x-a"] := input.call.arguments`,
		`allow := {input.call.arguments.a: x | some x in [1, 2]}`,
	} {
		p := ruled(t, "package policy\n"+rule)
		_, err := p.Decide(t.Context(), &policies.Input{
			Action: policies.ActionCall, Time: time.Unix(1, 0), Call: &policies.Call{Method: "x", Arguments: []byte(`{"a":"[CANARY"}`)},
		})
		if err == nil || strings.Contains(err.Error(), "CANARY") || !strings.Contains(err.Error(), p.Revision()) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
