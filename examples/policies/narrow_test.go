package policies_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

// words are what rules could trip over: names that mean something somewhere,
// near misses, and what breaks out of quotes, lines and templates.
var words = []string{
	"read_file", "Read_file", "search_code", "get_issue", "list_directory", "list_issues", "move_file", "generate_image", "Generate Image", "search_web",
	"list_holidays", "path", "Path", "owner", "repo", "acme", "website", "acme/website", "/srv/shared/a", "/srv/shared/../a", "/srv//shared",
	"always", "files", "github", "payroll", "tickets", "ledger", "*", "", "%s%d%!q", "${x}{{x}}", "a\"b'c`d", "a\nb\r\n", "\x00", "\u202e\u2028", "é",
}

// toldNobody stands in arguments: an answer and a record hold what a policy
// says, so it must not repeat them.
const toldNobody = "told-nobody"

// anyJSON is JSON of every type, with the words in it.
func anyJSON(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		word := rapid.SampledFrom(append(words[:len(words):len(words)], toldNobody))
		switch rapid.IntRange(0, 6+min(depth, 1)*3).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
		case 3, 4, 5, 6:
			return word.Draw(t, "word")
		case 7:
			return rapid.SliceOfN(anyJSON(depth-1), 0, 3).Draw(t, "array")
		default:
			return rapid.MapOfN(word, anyJSON(depth-1), 0, 4).Draw(t, "object")
		}
	})
}

// limitedTools have arguments that an example reads, and limited are those.
var limitedTools = []string{"read_file", "move_file", "list_issues", "search_code"}

var limited = rapid.MapOfN(rapid.SampledFrom([]string{"path", "source", "destination", "owner", "repo", "repository"}), anyJSON(1), 1, 3)

func text(t *rapid.T, value any) jsontext.Value {
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// question is one input, with whatever a caller and an operator can put there.
func question(t *rapid.T) *policies.Input {
	word := rapid.SampledFrom(words)
	in := &policies.Input{
		Principal: policies.Principal{Principal: identity.Principal{Kind: identity.KindAccessToken}},
		Server:    server(t),
		Transport: "mcp",
		Action:    rapid.SampledFrom([]policies.Action{policies.ActionCall, policies.ActionCall, policies.ActionListItem, policies.ActionOpenStream, policies.ActionBootstrap, policies.ActionRotate}).Draw(t, "action"),
		Time:      time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "time"), 0),
	}
	in.Principal.Subject = rapid.SampledFrom([]string{"t1", "00000000-0000-4000-8000-000000000001"}).Draw(t, "principal")
	if in.Principal.Narrowed = rapid.Bool().Draw(t, "narrowed"); in.Principal.Narrowed {
		in.Principal.Scopes = rapid.SliceOfN(rapid.SampledFrom([]string{"mcp:connect", "tools:call", "tools:call:read_file", "tools:call:"}), 0, 3).Draw(t, "scopes")
	}
	if in.Action == policies.ActionCall || in.Action == policies.ActionListItem {
		call := &policies.Call{Method: rapid.SampledFrom([]string{"tools/call", "tools/call", "tools/call", "resources/read", "tools/list", "initialize", "x/y"}).Draw(t, "method")}
		switch call.Method {
		case "tools/call":
			call.Tool = rapid.OneOf(word, rapid.SampledFrom(limitedTools)).Draw(t, "tool")
		case "resources/read":
			call.Resource = "file://" + word.Draw(t, "resource")
		}
		if in.Action == policies.ActionCall && rapid.Bool().Draw(t, "has arguments") {
			call.Arguments = text(t, rapid.OneOf(anyJSON(2), limited.AsAny(), limited.AsAny()).Draw(t, "arguments"))
		}
		in.Call = call
	}
	return in
}

func server(t *rapid.T) *policies.Server {
	word := rapid.SampledFrom(words)
	out := &policies.Server{Name: "one"}
	out.Labels = rapid.MapOfN(rapid.SampledFrom([]string{"kind", "team", "hours", "Kind"}), word, 0, 3).Draw(t, "labels")
	if rapid.Bool().Draw(t, "has data") {
		out.Data = text(t, map[string]any{"read_only_tools": anyJSON(2).Draw(t, "data")})
	}
	if rapid.Bool().Draw(t, "has grants") {
		patterns := rapid.SliceOfN(word, 0, 3).Draw(t, "patterns")
		who := rapid.SampledFrom([]map[string]string{{}, {"id": "t1"}, {"id": "t2"}}).Draw(t, "who")
		out.Grants = text(t, []any{map[string]any{"principal": who, "tools": patterns}})
	}
	return out
}

// TestExamplesNeverErrNorWiden asks each example whatever can be asked: it has
// an answer, for an error would be the gateway's fault (503) and not the
// caller's, and what it allows the standard policy allows.
func TestExamplesNeverErrNorWiden(t *testing.T) {
	standard, err := policies.Compile(t.Context(), policies.Standard())
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, name string) {
		example, err := policies.Compile(t.Context(), bundle(t, name))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[bool]int{}
		rapid.Check(t, func(rt *rapid.T) {
			for range 8 {
				seen[ask(rt, example, standard)]++
			}
		})
		if seen[true] == 0 || seen[false] == 0 {
			t.Errorf("%d allowed, %d denied: nothing was tested", seen[true], seen[false])
		}
	})
}

// ask asks one question, and says whether it was allowed. An answer that is late
// is the machine's fault.
func ask(t *rapid.T, example, standard *policies.Policy) bool {
	in := question(t)
	base, err := standard.Decide(t.Context(), in)
	if err != nil && !errors.Is(err, policies.ErrDeadline) {
		t.Fatalf("the standard policy: %v", err)
	}
	late := err != nil
	d, err := example.Decide(t.Context(), in)
	if errors.Is(err, policies.ErrDeadline) {
		return false
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, denial := range d.Denials {
		if strings.Contains(denial.Text, toldNobody) {
			t.Fatalf("%s repeats an argument: %s", denial.Code, denial.Text)
		}
	}
	if d.Allow && !base.Allow && !late {
		t.Fatalf("allowed what the standard policy does not: %v", base.Denials)
	}
	return d.Allow
}
