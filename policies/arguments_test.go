package policies

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// TestTooLargeArgumentsAreTheCallers: what a caller sends too much of is told
// apart from a fault of the gateway or of the policy, and holds no value.
func TestTooLargeArgumentsAreTheCallers(t *testing.T) {
	reads := compiled(t, Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\nallow if input.call.arguments.x != 17\n\nallow if input.call.params.x != 17\n")}})
	other := compiled(t, Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\nallow if input.call.tool\n")}})
	for name, value := range map[string]string{
		"values":       "[" + strings.Repeat("17,", valuesMost) + "17]",
		"long number":  strings.Repeat("8", numberMost+1),
		"large number": "8e99999999",
		"depth":        strings.Repeat("[", depthMost+1) + strings.Repeat("]", depthMost+1),
	} {
		object := jsontext.Value(`{"x":` + value + `}`)
		for _, call := range []*Call{{Tool: "a", Arguments: object}, {Tool: "a", Params: object}} {
			_, err := reads.Decide(t.Context(), &Input{Action: ActionCall, Call: call})
			if !errors.Is(err, ErrArguments) || strings.Contains(err.Error(), "88") || strings.Contains(err.Error(), "8e9") {
				t.Errorf("%s: %v", name, err)
			}
			if d, err := other.Decide(t.Context(), &Input{Action: ActionCall, Call: call}); err != nil || !d.Allow {
				t.Errorf("%s: a policy that does not read it: %+v, %v", name, d, err)
			}
		}
	}
	for name, in := range map[string]*Input{ // whose fault is not the caller's
		"claims": {Action: ActionCall, Principal: Principal{Claims: []byte(`{"x":8e99999999}`)}},
		"server": {Action: ActionCall, Server: &Server{Data: []byte(`{"x":8e99999999}`)}},
	} {
		all := compiled(t, Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\nallow if input.principal.claims\n\nallow if input.server.data\n")}})
		if _, err := all.Decide(t.Context(), in); err == nil || errors.Is(err, ErrArguments) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
