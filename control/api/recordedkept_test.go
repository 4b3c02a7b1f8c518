package api_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
)

// What record_arguments kept is read with arguments=true, and by no policy that
// somebody just brings.
func TestNoPolicySaysKeptArguments(t *testing.T) {
	const canary = "canary-4711"
	for _, rule := range []string{
		`deny contains {"code": "told", "message": json.marshal(input.call.arguments)}`,
		`deny contains {"code": replace(input.call.arguments.path, "-", "_"), "message": "m"}`,
		`deny contains {"code": "told", "message": base64.encode(input.call.arguments.path)}`,
		`scopes_needed contains input.call.arguments.path`,
		`headers["x-arbiter-policy-a"] := input.call.arguments.path`,
		`limits contains input.call.arguments`,
		`allow if to_number(input.call.arguments.path) > 1`,
		`hide := input.call.arguments.path`,
	} {
		t.Run(rule, func(t *testing.T) {
			f := newFixture(t)
			srv := f.create(`{"name":"demo","mcp":"http://h","record_arguments":{}}`)
			reads := "package policy\n\n" + rule + "\n"
			r := written(t, f.replace(reads), srv.ID, "read")
			r.Input.Call.Arguments = []byte(`{"path":"` + canary + `"}`)
			f.keep(`[{"path":"`+canary+`"}]`, r)
			for _, got := range []answer{
				f.do("POST", "/api/v1/policy/try", tryFiles(t, reads, "")),
				f.do("POST", "/api/v1/policy/try", `{"decision":"`+r.ID+`"}`),
				f.do("GET", "/api/v1/decisions/"+r.ID+"/explanation", ""),
			} {
				text := string(got.body)
				if got.status != 200 || !strings.Contains(text, r.ID) {
					t.Errorf("status %d, %s", got.status, text)
				}
				for _, told := range []string{canary, strings.ReplaceAll(canary, "-", "_"), base64.StdEncoding.EncodeToString([]byte(canary))} {
					if strings.Contains(text, told) {
						t.Errorf("%s is told: %s", told, text)
					}
				}
			}
		})
	}
	t.Run("texts of the source", func(t *testing.T) {
		f := newFixture(t)
		srv := f.create(`{"name":"demo","mcp":"http://h","record_arguments":{}}`)
		r := written(t, f.replace(allowAll), srv.ID, "read")
		r.Input.Call.Arguments = []byte(`{"path":"/etc"}`)
		f.keep(`[{"path":"/etc"}]`, r)
		const says = "package policy\n\ndeny contains {\"code\": \"etc\", \"message\": \"not there\"} if input.call.arguments.path == \"/etc\"\n"
		got := f.try(tryFiles(t, says, ""))
		if want := (api.PolicyDenial{Code: "etc", Message: "not there"}); len(got.Differences) != 1 || got.Differences[0].Candidate.Denials[0] != want {
			t.Errorf("tried %+v", got)
		}
	})
}
