package policies_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
)

// refused is the first fault of a bundle that is none.
func refused(t *testing.T, b policies.Bundle) policies.Fault {
	t.Helper()
	_, err := policies.Compile(t.Context(), b)
	var bundle *policies.BundleError
	if !errors.As(err, &bundle) || len(bundle.Faults) == 0 {
		t.Fatalf("error %v", err)
	}
	return bundle.Faults[0]
}

// TestForbiddenFunctions: nothing looks outside of the input, answers twice
// differently, asks a clock, makes code of data or runs for long in one step.
func TestForbiddenFunctions(t *testing.T) {
	for _, expression := range []string{
		`http.send({"method": "GET", "url": "http://127.0.0.1/"})`,
		`net.lookup_ip_addr("localhost")`,
		`opa.runtime()`,
		`time.now_ns() > 1`,
		`rand.intn("x", 10) > 1`,
		`uuid.rfc4122("x")`,
		`rego.parse_module("x", "package x")`,
		`io.jwt.decode_verify("x", {"secret": "x"})`,
		`io.jwt.encode_sign({}, {}, {})`,
		`io.jwt.encode_sign_raw("{}", "{}", "{}")`,
		`crypto.x509.parse_and_verify_certificates("x")`,
		`crypto.x509.parse_and_verify_certificates_with_options("x", {})`,
		`providers.aws.sign_req({}, {}, 1)`,
		`trace("x")`,
		`json.match_schema({}, {"$ref": "http://127.0.0.1/"})`,
		`json.verify_schema({"$ref": "http://127.0.0.1/"})`,
		`graphql.is_valid("{a}", "type Query {a: String}")`,
		`graph.reachable_paths({"a": ["a"]}, {"a"})`,
		`strings.render_template("{{range .}}{{end}}", {})`,
	} {
		name, _, _ := strings.Cut(expression, "(")
		b := rego("package policy\n\nallow := true\n")
		b.Files["lib/more.rego"] = []byte("package policy.more\n\nx if " + expression + "\n")
		got := refused(t, b)
		if got.File != "lib/more.rego" || got.Line != 3 || !strings.Contains(got.Message, name) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAllowedFunctions(t *testing.T) {
	for _, expression := range []string{
		`io.jwt.verify_hs256("x.y.z", "secret")`, `io.jwt.verify_rs256("x", "y")`, `io.jwt.decode("x.y.z")`,
		`time.weekday(input.time) == "Monday"`, `time.clock([input.time, "Europe/Paris"])[0] > 8`, `time.parse_rfc3339_ns("2026-01-01T00:00:00Z") > 1`,
		`regex.match("^a+$", input.call.tool)`, `glob.match("a*", [], input.call.tool)`, `net.cidr_contains("10.0.0.0/8", input.request.source)`,
		`startswith(input.call.tool, "a")`, `crypto.sha256("x") == "y"`, `semver.compare("1.0.0", "1.0.1") < 0`, `json.unmarshal("{}") == {}`,
		`sprintf("%d", [1]) == "1"`, `object.get(input.call, "tool", "") == "a"`, `walk(input.call, [_, 1])`,
	} {
		if _, err := policies.Compile(t.Context(), rego("package policy\n\nallow if "+expression+"\n")); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// TestEveryStepEnds: what a caller sends, and what a policy does with it, ends
// about when the deadline is over, in an answer or in an error.
func TestEveryStepEnds(t *testing.T) {
	long := strings.Repeat("a", 900_000)
	doubled := func(operation string) string {
		out := "x0 := \"aaaa\"\n"
		for i := range 40 {
			out += fmt.Sprintf("x%d := %s\n", i+1, strings.ReplaceAll(operation, "X", fmt.Sprint("x", i)))
		}
		return out + "count(x40) > 0"
	}
	for _, row := range []struct{ name, body, arguments, want string }{
		{"a long range", "count(numbers.range(1, 1000000000)) > 0", "", "50 ms"},
		{"loops over arguments", "some a in input.call.arguments; some b in input.call.arguments; a + b == -1", numbers(19_000), "50 ms"},
		{"walk in walk", "walk(input, [p, v]); walk(input, [q, w]); p == q; v != w", numbers(9000), "50 ms"},
		{"numbers of one hash", "count({x | some x in input.call.arguments}) == 1", "[" + strings.Repeat("0.0001,0.0002,0.00003,", 6000) + "0]", ""},
		{"replace with itself", `replace(input.call.arguments.a, "", input.call.arguments.a) == ""`, `{"a":"` + long + `"}`, "50 ms"},
		{"texts doubled by concat", doubled(`concat("", [X, X])`), "", "50 ms"},
		{"texts doubled by sprintf", doubled(`sprintf("%s%s", [X, X])`), "", "50 ms"},
		{"texts doubled by replace", doubled(`replace(X, "a", "aa")`), "", "50 ms"},
		{"all addresses", `count(net.cidr_expand("::/0")) > 0`, "", "50 ms"},
		{"a regular expression on a long text", `regex.match("(a*)*b", input.call.arguments.a)`, `{"a":"` + long + `"}`, "regex.match failed"},
		{"a pattern of the caller's", `regex.match(input.call.arguments.a, "x")`, `{"a":"` + strings.Repeat("(a|b)*", 90_000) + `"}`, "regex.match failed"},
		{"a replacement in a long text", `regex.replace(input.call.arguments.a, "a", "b") != ""`, `{"a":"` + long + `"}`, "regex.replace failed"},
		{"a shift by a caller's number", "bits.lsh(1, input.call.arguments) > 1", "10000000000", "bits.lsh failed"},
		{"a patch of a caller's", "json.patch([], input.call.arguments) != 1", "[" + strings.Repeat(`{"op":"add","path":"/0","value":1},`, 2500) + "1]", "json.patch failed"},
		{"an enormous number", "input.call.arguments * 2 > 1", "1e99999999", "too big"},
		{"an enormous fraction", "input.call.arguments * 2 > 1", "1e-99999999", "too big"},
		{"a large number", "input.call.arguments * input.call.arguments > 1", "1e300", ""},
		{"a long number", "input.call.arguments * 2 > 1", strings.Repeat("9", 5000), "256 characters"},
		{"an enormous number in a text", "to_number(input.call.arguments) * 2 > 1", `"1e99999999"`, "to_number failed"},
		{"JSON nested deep in a text", "json.unmarshal(input.call.arguments) != 1", `"` + strings.Repeat("[", 900_000) + `"`, "json.unmarshal failed"},
		{"arguments nested deep", "input.call.arguments != 1", strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000), "nested more than"},
		{"arguments of many values", "input.call.arguments != 1", numbers(30_000), "more than 20000 values"},
		{"a width of a million", `count(sprintf("%999999d", [1])) > 5`, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := call("x", "")
			in.Call.Arguments = []byte(row.arguments)
			p := compile(t, rego("package policy\n\nallow if {\n"+row.body+"\n}\n"))
			_, err := p.Decide(t.Context(), in)
			if row.want == "" {
				if err != nil && !errors.Is(err, policies.ErrDeadline) {
					t.Error(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), row.want) && !errors.Is(err, policies.ErrDeadline) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

func numbers(n int) string { return "[" + strings.Repeat("1234567,", n-1) + "1]" }
