package policies

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/topdown"
	"pgregory.net/rapid"
)

// Values that a caller sends, and patterns that a policy compares them with:
// among them those on which OPA's rule index and its functions have differed.
var (
	sentValues = []string{
		`"a"`, `"ab"`, `""`, `"/etc/passwd"`, `"x\\/etc/y"`, `"x\\:b"`, `"a:b"`, `"a*:b"`, `"["`, `"\\"`, `1`, `1.0`, `-1`, `true`, `false`, `null`,
		`[]`, `["a"]`, `[1, "a"]`, `["", "etc", "passwd"]`, `[["a"]]`, `{}`, `{"a": 1}`, `{"0": "a"}`, `9007199254740993`, `100000000000000000000000`,
	}
	patterns = rapid.SampledFrom([]string{
		`"a"`, `"ab"`, `""`, `"a*"`, `"/etc/*"`, `"*/etc/*"`, `"*:b"`, `"a\\*:b"`, `"\\["`, `1`, `true`, `null`, `[]`, `["a"]`, `["a", 1]`, `{"a", "b"}`, `{1}`, `{"a": 1}`,
		"data.names", "data.nested", "input.call.arguments.y",
	})
	// X is the caller's value, W a pattern.
	comparisons = rapid.SampledFrom([]string{
		"startswith(X, W)", "endswith(X, W)", "startswith(W, X)", "contains(X, W)", "strings.any_prefix_match(X, W)", "strings.any_suffix_match(X, W)",
		"strings.any_prefix_match(W, X)", `glob.match(W, ["/"], X)`, `glob.match(W, [":"], X)`, "glob.match(W, [], X)", "glob.match(W, null, X)",
		`glob.match(W, ["::"], X)`, "regex.match(W, X)", "lower(X) == W", "count(X) == W", "X == W", "X in W", "W in X", "X[_] == W", "W[X]", "X.a == W", "X > W", "X & W",
		"takes(X, W)", "takes(W, X)", "matches(X)",
	})
	rulesAround = rapid.SampledFrom([]string{
		"deny contains reason if { C }", "bad if { C }\ndeny contains reason if bad", "bad := true if { C } else := false\ndeny contains reason if bad",
		"deny contains reason if { some e in [1, 2]; e == 1; C }", "deny contains reason if { every e in [1] { e == 1; C } }", "deny contains reason if { not C }",
		"deny contains reason if { v := X; D }", "deny contains reason if { a := input.call.arguments; v := a.x; D }", "h(v) if { D }\ndeny contains reason if h(X)",
	})
)

const indexedHead = `package policy
allow := true
reason := {"code": "a", "message": "a"}
takes(one, other) if { startswith(one, "a"); other }
matches(one) if glob.match("a*", [], one)
`

// anyDenial is a bundle with one comparison in one place.
func anyDenial(t *rapid.T) Bundle {
	comparison := strings.ReplaceAll(comparisons.Draw(t, "comparison"), "W", patterns.Draw(t, "pattern"))
	rules := strings.NewReplacer(
		"C", strings.ReplaceAll(comparison, "X", "input.call.arguments.x"), "D", strings.ReplaceAll(comparison, "X", "v"), "X", "input.call.arguments.x",
	).Replace(rulesAround.Draw(t, "rules"))
	return Bundle{Files: map[string][]byte{"policy.rego": []byte(indexedHead + rules + "\n"), "data.json": []byte(`{"names": ["a", "b"], "nested": {"a": true}}`)}}
}

// TestIndexHidesNoDenial: what is a denial or an error where every rule is
// evaluated is never an allow where OPA's rule index leaves rules out. (Of two
// alternatives of which one holds the other may fail unseen, with an index or
// without: these rules have none.)
func TestIndexHidesNoDenial(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(t *rapid.T) {
		b := anyDenial(t)
		p, err := Compile(t.Context(), b)
		if err != nil {
			return // a pattern of a type that the function does not take
		}
		compiled++
		p.within = patience
		for _, value := range sentValues {
			in := &Input{Action: ActionCall, Call: &Call{
				Method: "tools/call", Arguments: jsontext.Value(`{"x": ` + value + `, "y": ` + rapid.SampledFrom(sentValues).Draw(t, "y") + `}`),
			}}
			indexed, failed := p.evaluate(t.Context(), in)
			answer, all := p.run(t.Context(), in, p.question, patience, everyRule{})
			if failed == nil && indexed.Allow && (all != nil || !allows(answer)) {
				t.Fatalf("%s\narguments %s: allowed; without an index %v, error %v", b.Files["policy.rego"], in.Call.Arguments, answer, all)
			}
		}
	})
	if compiled == 0 {
		t.Error("no rule was compiled")
	}
}

func allows(answer topdown.QueryResult) bool {
	d, err := read(said(answer).member)
	return err == nil && d.Allow
}

// everyRule is a tracer that sees nothing: with one, run uses no index.
type everyRule struct{}

func (everyRule) Enabled() bool               { return true }
func (everyRule) TraceEvent(topdown.Event)    {}
func (everyRule) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TestIndexReadsNoPatternOtherwise: the index splits patterns and values by
// itself, and takes a "\" in them for an escape.
func TestIndexReadsNoPatternOtherwise(t *testing.T) {
	for _, row := range []struct{ match, value string }{
		{`glob.match("*/etc/*", ["/"], input.call.arguments.x)`, `"x\\/etc/y"`},
		{`glob.match("a\\*:b", [":"], input.call.arguments.x)`, `"a*:b"`},
		{`glob.match("\\[", ["/"], input.call.arguments.x)`, `"["`},
	} {
		p, err := Compile(t.Context(), Bundle{Files: map[string][]byte{"policy.rego": []byte(indexedHead + "deny contains reason if " + row.match + "\n")}})
		if err != nil {
			t.Fatal(err)
		}
		p.within = patience
		d, err := p.Decide(t.Context(), &Input{Action: ActionCall, Call: &Call{Method: "tools/call", Arguments: jsontext.Value(`{"x": ` + row.value + `}`)}})
		if err != nil || len(d.Denials) != 1 || d.Denials[0].Code != "a" {
			t.Errorf("%s of %s: %+v, %v", row.match, row.value, d, err)
		}
	}
}
