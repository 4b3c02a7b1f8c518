package main

import (
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

func TestExplainADecision(t *testing.T) {
	s := newShell(t).serve()
	srv := printed[api.Server](s.run("server", "add", "demo", "--mcp", "http://h", "--json"))
	revision := printed[api.ChangedPolicy](s.run("policy", "apply", s.writtenPolicy("one", denyDrop), "--json")).Revision
	denied := s.recorded(srv.ID, revision, "drop", func(r *record.Record) {
		r.Result = &record.Result{Decision: policies.Decision{Denials: []policies.Denial{{Code: "no_drop", Text: "drop is not for agents"}}}}
		r.Outcome, r.Reason, r.Detail, r.Status = record.Deny, "policy_denied", "no_drop", 403
	})
	out := s.run("explain", denied).ok(
		`access_token:t1 ("age\x1bnt"), from 10.0.0.7`, `tools/call "drop" (POST /servers/`+srv.ID+`/mcp)`, "demo "+srv.ID,
		"deny: policy_denied (no_drop), status 403", "no_drop: drop is not for agents", revision+", which decides now",
		"rules that hold", `policy.rego:5  deny contains`,
		"what would have allowed it", "policy.rego:3  allow", `does not hold at policy.rego:3  input.call.tool != "drop"`)
	if strings.Contains(out.stdout, "\x1b") {
		t.Error("a caller's text reaches the terminal")
	}
	if why := printed[api.Explanation](s.run("explain", denied, "--json")); why.Policy == nil || !why.Policy.Same {
		t.Errorf("explained %+v", why)
	}
	allowed := s.recorded(srv.ID, revision, "echo", func(*record.Record) {})
	if out := s.run("explain", allowed).ok("allow: allowed", "the policy allowed it", "policy.rego:3  allow"); strings.Contains(out.stdout, "would have allowed") {
		t.Errorf("an allowed request: %s", out.stdout)
	}
	s.run("policy", "apply", s.writtenPolicy("two", allowAll)).ok()
	s.run("explain", denied).ok(revision+", which was replaced since", "policy.rego:5  deny contains")
}

// What would have allowed it is no news about what was allowed.
func TestExplainAnAllowanceWithScopes(t *testing.T) {
	s := newShell(t).serve()
	srv := printed[api.Server](s.run("server", "add", "demo", "--mcp", "http://h", "--json"))
	dir := s.writtenPolicy("one", allowAll+"\nscopes_needed := {\"tools:call\"}\n")
	revision := printed[api.ChangedPolicy](s.run("policy", "apply", dir, "--json")).Revision
	out := s.run("explain", s.recorded(srv.ID, revision, "echo", func(*record.Record) {})).ok("rules that hold")
	if strings.Contains(out.stdout, "would have allowed") {
		t.Errorf("printed %s", out.stdout)
	}
}

func TestExplainWhatIsNotKnown(t *testing.T) {
	s := newShell(t).serve()
	srv := printed[api.Server](s.run("server", "add", "demo", "--mcp", "http://h", "--json"))
	refused := s.recorded(srv.ID, "", "refused", func(r *record.Record) {
		r.Input = record.Input{Request: r.Input.Request}
		r.Result, r.Outcome, r.Reason, r.Status = nil, record.Deny, "no_credential", 401
	})
	s.run("explain", refused).ok("nobody known", "none known", "deny: no_credential, status 401", "carried no credential", "send Authorization: Bearer")
	old := s.recorded(srv.ID, "0123456789abcdef", "old", func(*record.Record) {})
	s.run("explain", old).ok("0123456789abcdef, which is not kept any more", "not explained: the policy of this revision is not kept any more")
	failed := s.recorded(srv.ID, "", "failed", func(r *record.Record) {
		r.Result, r.Outcome, r.Reason, r.Detail, r.Status = nil, record.Error, "error", "the lease is lost", 503
	})
	s.run("explain", failed).ok("error: error (the lease is lost), status 503", "see its log")
	s.run("explain", "none").fails("no decision with this id")
	s.run("explain", refused, "--record").ok("decision id", refused, "reason", "no_credential")
}

func TestExplainScopesAndReasons(t *testing.T) {
	s := newShell(t).serve()
	srv := printed[api.Server](s.run("server", "add", "demo", "--mcp", "http://h", "--json"))
	revision := printed[api.Policy](s.run("policy", "show", "--json")).Revision
	id := s.recorded(srv.ID, revision, "echo", func(r *record.Record) {
		r.Input.Principal.Narrowed, r.Input.Principal.Scopes = true, []string{"mcp:connect"}
		r.Result = &record.Result{Decision: policies.Decision{
			Denials: []policies.Denial{{Code: "scope_missing", Text: "x"}}, Scopes: []string{"tools:call", "tools:call:echo"},
		}}
		r.Outcome, r.Reason, r.Detail = record.Deny, "policy_denied", "scope_missing"
	})
	s.run("explain", id).ok("scopes: mcp:connect", "scope_missing", "a credential with one of the scopes tools:call, tools:call:echo", "policy.rego:")
}
