package api_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

func (f *fixture) explain(id string) api.Explanation {
	f.t.Helper()
	var out api.Explanation
	f.do("GET", "/api/v1/decisions/"+id+"/explanation", "").want(http.StatusOK, &out)
	return out
}

func TestExplainADenial(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	revision := f.replace(denyDrop)
	r := denied(written(t, revision, srv.ID, "drop"), "no_drop")
	f.keep("", r)
	got := f.explain(r.ID)
	if got.Step != "policy" || !strings.Contains(string(got.Decision), `"decision_id"`) {
		t.Errorf("explained %+v", got)
	}
	p := got.Policy
	if p == nil || p.Revision != revision || !p.Known || !p.Current || !p.Same || p.Problem != "" || p.ServerNow {
		t.Fatalf("policy %+v", p)
	}
	if p.Answer.Outcome != "deny" || len(p.Answer.Denials) != 1 || p.Answer.Denials[0].Code != "no_drop" {
		t.Errorf("answer %+v", p.Answer)
	}
	if len(p.Why.Fired) != 1 || p.Why.Fired[0].Rule != "data.policy.deny" || p.Why.Fired[0].File != "policy.rego" || p.Why.Fired[0].Line != 5 {
		t.Errorf("fired %+v", p.Why.Fired)
	}
	if len(p.Why.Missing) != 1 || p.Why.Missing[0].Failed.Line != 3 || p.Why.Missing[0].Failed.Text != `input.call.tool != "drop"` {
		t.Errorf("missing %+v", p.Why.Missing)
	}
}

func TestExplainAnAllowance(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	r := written(t, f.replace(denyDrop), srv.ID, "echo")
	f.keep("", r)
	got := f.explain(r.ID)
	if got.Step != "policy" || got.Policy == nil || got.Policy.Answer.Outcome != "allow" || !got.Policy.Same || len(got.Policy.Why.Missing) != 0 {
		t.Fatalf("explained %+v", got)
	}
	if fired := got.Policy.Why.Fired; len(fired) != 1 || fired[0].Rule != "data.policy.allow" || fired[0].Line != 3 {
		t.Errorf("fired %+v", fired)
	}
}

// The policy that decided is asked, not the one that decides now.
func TestExplainAsksThePolicyOfThen(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	r := denied(written(t, f.replace(denyDrop), srv.ID, "drop"), "no_drop")
	f.keep("", r)
	f.replace(allowAll)
	got := f.explain(r.ID).Policy
	if got == nil || !got.Known || got.Current || !got.Same || got.Answer.Outcome != "deny" {
		t.Errorf("explained %+v", got)
	}
}

func TestExplainSaysWhatItDoesNotKnow(t *testing.T) {
	const readsPath = "package policy\n\nallow if startswith(input.call.arguments.path, \"/srv/\")\n"
	for _, test := range []struct {
		name  string
		edit  func(*record.Record)
		known bool
		want  string
	}{
		{"a policy that is not kept", func(r *record.Record) { r.Revision = "0123456789abcdef" }, false, "not kept any more"},
		{"values that were not recorded", func(r *record.Record) { r.Input.Call.Arguments = []byte(`{"path":"/etc/x"}`) }, true, "record_arguments"},
		{"a question that was too long", func(r *record.Record) { r.Input.Call.Tool = strings.Repeat("x", 300) }, true, "too long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			srv := f.create(plainServer)
			r := denied(written(t, f.replace(readsPath), srv.ID, "read"), "no_rule")
			test.edit(r)
			f.keep("", r)
			got := f.explain(r.ID).Policy
			if got == nil || got.Known != test.known || !strings.Contains(got.Problem, test.want) || got.Answer != nil || got.Same {
				t.Errorf("explained %+v", got)
			}
		})
	}
}

func TestExplainUsesKeptArguments(t *testing.T) {
	const readsPath = "package policy\n\nallow if startswith(input.call.arguments.path, \"/srv/\")\n"
	f := newFixture(t)
	f.create(`{"name":"demo","mcp":"http://h","record_arguments":{}}`)
	r := denied(written(t, f.replace(readsPath), f.stored("demo").ID.String(), "read"), "no_rule")
	r.Input.Call.Arguments = []byte(`{"path":"/etc/x"}`)
	f.keep(`[{"path":"/etc/x"}]`, r)
	got := f.explain(r.ID).Policy
	if got == nil || got.Problem != "" || !got.Same || len(got.Why.Missing) != 1 {
		t.Errorf("explained %+v", got)
	}
}

// Of a batch the first message that is not allowed is explained.
func TestExplainABatch(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	r := denied(written(t, f.replace(denyDrop), srv.ID, "x"), "no_drop")
	call := *r.Input.Call
	r.Input.Call = nil
	for i, tool := range []string{"echo", "drop", "add"} {
		call.Tool, call.Batch, call.BatchIndex = tool, true, i
		r.Input.Calls = append(r.Input.Calls, call)
	}
	f.keep("", r)
	got := f.explain(r.ID).Policy
	if got == nil || got.Message != 1 || !got.Same || got.Answer.Denials[0].Code != "no_drop" {
		t.Errorf("explained %+v", got)
	}
}

func TestExplainErrors(t *testing.T) {
	const conflict = "package policy\n\nallow := true if input.action\n\nallow := false if input.call\n"
	f := newFixture(t)
	srv := f.create(plainServer)
	r := written(t, f.replace(conflict), srv.ID, "echo")
	r.Result, r.Outcome, r.Reason, r.Detail, r.Status = nil, record.Error, "error", "canary of the policy", 503
	own := written(t, "", srv.ID, "own")
	own.Result, own.Outcome, own.Reason, own.Detail = nil, record.Error, "error", "canary of the gateway"
	f.keep("", r, own)
	got := f.explain(r.ID)
	if got.Step != "policy" || !strings.Contains(got.Means, "canary of the policy") || !got.Policy.Same ||
		got.Policy.Why.Fault == nil || got.Policy.Why.Fault.File != "policy.rego" || got.Policy.Why.Fault.Line == 0 {
		t.Errorf("explained %+v, policy %+v", got, got.Policy)
	}
	got = f.explain(own.ID)
	if got.Step != "gateway" || !strings.Contains(got.Means, "canary of the gateway") || got.Policy != nil {
		t.Errorf("explained %+v", got)
	}
}

// An answer that extauthz cannot use is the policy's error, and what fails after
// it the gateway's. An error of the policy begins with its name.
func TestExplainErrorsAfterTheAnswer(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	revision := f.replace(allowAll)
	for i, test := range []struct{ detail, step string }{
		{"policy " + revision + ": it sets a header that policy_upstream_headers does not list", "policy"},
		{"policy " + revision + ": it sets one header to two values for one batch", "policy"},
		{"the decision lies too far back", "gateway"},
	} {
		r := written(t, revision, srv.ID, fmt.Sprintf("t%d", i))
		r.Outcome, r.Reason, r.Detail, r.Status = record.Error, "error", test.detail, 503
		f.keep("", r)
		got := f.explain(r.ID)
		if got.Step != test.step || !strings.Contains(got.Means, test.detail) || got.Policy == nil || got.Policy.Answer.Outcome != "allow" {
			t.Errorf("explained %+v", got)
		}
	}
}

func TestExplainWhatNoPolicyWasAsked(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	for _, test := range []struct{ reason, outcome, step, help string }{
		{"no_credential", record.Deny, "credential", "Bearer"},
		{"credential_of_another_server", record.Deny, "credential", "own server only"},
		{"session_missing", record.Deny, "session", "initialize"},
		{"body_refused", record.Deny, "message", "JSON-RPC"},
		{"origin_refused", record.Deny, "address", "--origin"},
		{"too_many_streams", record.Deny, "limit", "streams_per_credential"},
		{"upstream_unreachable", record.Deny, "upstream", "upstream_networks"},
		{"allowed", record.Allow, "session", ""},
		{"a_reason_of_tomorrow", record.Deny, "gateway", "operations"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			f.t = t
			r := written(t, "", srv.ID, test.reason)
			r.Result, r.Outcome, r.Reason = nil, test.outcome, test.reason
			f.keep("", r)
			got := f.explain(r.ID)
			if got.Step != test.step || got.Means == "" || !strings.Contains(got.Help, test.help) || got.Policy != nil {
				t.Errorf("explained %+v", got)
			}
		})
	}
}

func TestExplainRejects(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{"r-none", "%00", strings.Repeat("x", 101)} {
		f.do("GET", "/api/v1/decisions/"+id+"/explanation", "").wantProblem(http.StatusNotFound, "arbiter-request-id")
	}
	err := f.store.AddDecisions(t.Context(), []store.Decision{{ID: "r-broken", Time: testTime, JSON: []byte(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	f.do("GET", "/api/v1/decisions/r-broken/explanation", "").wantProblem(http.StatusInternalServerError, "the gateway failed")
}

// Every reason that extauthz can give has an explanation, and no other does.
func TestEveryReasonIsExplained(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../extauthz/denial.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	srv := f.create(plainServer)
	count := 0
	ast.Inspect(parsed, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "reason") {
			return true
		}
		reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if reason == "allowed" || reason == "policy_denied" {
			return true
		}
		count++
		r := written(t, "", srv.ID, reason)
		r.Result, r.Outcome, r.Reason = nil, record.Deny, reason
		f.keep("", r)
		if got := f.explain(r.ID); got.Step == "gateway" {
			t.Errorf("%s has no explanation", reason)
		}
		return true
	})
	if count < 30 {
		t.Errorf("only %d reasons were found", count)
	}
}
