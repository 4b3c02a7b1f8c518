package policies

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// TestFaultsSayWhatIsWanted: OPA's message alone is often "match error".
func TestFaultsSayWhatIsWanted(t *testing.T) {
	for _, row := range []struct{ rule, want string }{
		{`allow if input.call.tool == 1`, "match error (left : string; right : number)"},
		{`allow if input.principle.id`, `undefined ref: input.principle.id (have: "principle"; want (one of): ["action" "call"`},
		{`allow if startswith(input.call.tool, 1)`, "startswith: invalid argument(s) (have: (string, number"},
		{`allow if input.call.tool = `, "unexpected eof token"},
		{`allow if input.request.headers == [input.principal, input.call, input.server]`, "..."},
	} {
		_, err := Compile(t.Context(), Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\n" + row.rule + "\n")}})
		bundle, is := errors.AsType[*BundleError](err)
		if !is || !strings.Contains(bundle.Faults[0].Message, row.want) || strings.ContainsAny(bundle.Faults[0].Message, "\n^") {
			t.Errorf("%s: %v", row.rule, err)
		}
		if is && len(bundle.Faults[0].Message) > 2*detailMost {
			t.Errorf("%s: %d bytes", row.rule, len(bundle.Faults[0].Message))
		}
	}
}

func TestFaultOfAFileHasNoLine(t *testing.T) {
	for want, fault := range map[string]Fault{
		`{"file":"a","message":"m"}`:          {File: "a", Message: "m"},
		`{"file":"a","line":2,"message":"m"}`: {File: "a", Line: 2, Message: "m"},
	} {
		if got, err := json.Marshal(fault); string(got) != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
