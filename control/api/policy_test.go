package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/policies"
)

const (
	allowAll = "package policy\n\nallow if true\n"
	// denyDrop denies one tool, and denyTest says so.
	denyDrop = "package policy\n\nallow if input.call.tool != \"drop\"\n\n" +
		"deny contains {\"code\": \"no_drop\", \"message\": \"drop is not for agents\"} if input.call.tool == \"drop\"\n"
	denyTest = "package policy_test\n\nimport data.policy\n\n" +
		"test_deny_drop if not policy.allow with input as {\"action\": \"call\", \"principal\": {\"kind\": \"access_token\", \"id\": \"a\"}, \"call\": {\"method\": \"tools/call\", \"tool\": \"drop\"}}\n"
)

// files is the body with a policy's files, by path and text in turn.
func files(t testing.TB, pairs ...string) string {
	t.Helper()
	texts := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		texts[pairs[i]] = pairs[i+1]
	}
	out, err := json.Marshal(map[string]any{"files": texts})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func (f *fixture) policy(query string) api.Policy {
	f.t.Helper()
	var out api.Policy
	f.do("GET", "/api/v1/policy"+query, "").want(http.StatusOK, &out)
	return out
}

func TestShowPolicy(t *testing.T) {
	f := newFixture(t)
	standard := policies.Standard()
	got := f.policy("")
	if got.Revision != standard.Revision() || got.Origin != policy.OriginStandard || got.Source != "" || got.Refused != nil || len(got.Files) != len(standard.Files) {
		t.Errorf("shown %+v", got)
	}
	for _, file := range got.Files {
		if file.Size != len(standard.Files[file.Path]) || file.Text != nil {
			t.Errorf("file %s: %d bytes, text %v", file.Path, file.Size, file.Text)
		}
	}
	for _, file := range f.policy("?files=true").Files {
		if file.Text == nil || *file.Text != string(standard.Files[file.Path]) {
			t.Errorf("file %s has another text", file.Path)
		}
	}
	want := []api.PolicyReplica{{Name: "one", Connected: true, Runs: true}, {Name: "two", Connected: true, Error: "refused"}}
	if fmt.Sprint(got.Replicas) != fmt.Sprint(want) {
		t.Errorf("replicas %+v, want %+v", got.Replicas, want)
	}
	f.do("GET", "/api/v1/policy?files=yes", "").wantProblem(http.StatusBadRequest, "true or false")
	f.do("GET", "/api/v1/policy?file=true", "").wantProblem(http.StatusBadRequest, "not a query parameter")
}

func TestReplacePolicy(t *testing.T) {
	f := newFixture(t)
	var got api.ChangedPolicy
	f.do("PUT", "/api/v1/policy", files(t, "policy.rego", denyDrop, "policy_test.rego", denyTest)).want(http.StatusOK, &got)
	if !got.Applied.Applied || got.Revocation.ReplicasConfirmed != 2 || got.Revocation.StreamsEnded != 7 || got.Revocation.Milliseconds != 12 {
		t.Errorf("put %+v", got)
	}
	shown := f.policy("")
	if shown.Revision != got.Revision || shown.Origin != "API" || len(shown.Files) != 2 {
		t.Errorf("shown %+v", shown)
	}
	stored, err := f.store.Policy(t.Context())
	if err != nil || string(stored.Files["policy.rego"]) != denyDrop {
		t.Fatalf("stored %q, %v", stored.Files, err)
	}
	want := revocation.Change{Revision: stored.Settings, What: revocation.Key{Kind: revocation.KindPolicy, Key: "policy"}, Asked: testTime}
	if len(f.fleet.changes) != 1 || f.fleet.changes[0] != want {
		t.Errorf("waited for %+v, want %+v", f.fleet.changes, want)
	}
	if len(f.fleet.revisions) != 1 || f.fleet.revisions[0] != stored.Settings {
		t.Errorf("waited for Envoy at %v", f.fleet.revisions)
	}
	f.logged("policy replaced", "admin socket uid 7", got.Revision)
}

// A policy that not every replica has is not answered as if it had.
func TestReplacePolicyIsConfirmed(t *testing.T) {
	f := newFixture(t)
	refused := []revocation.Refusal{{Replica: "two", Reason: "policy.rego:3: no"}}
	f.fleet.confirmed = func(context.Context, revocation.Change) (revocation.Result, error) {
		return revocation.Result{Replicas: 2, Confirmed: 1, Refused: refused}, &revocation.RefusedError{Refused: refused}
	}
	f.do("PUT", "/api/v1/policy", files(t, "policy.rego", allowAll)).
		wantProblem(http.StatusServiceUnavailable, "1 of 2 replicas, but others refused it and go on as before until their leases are over, then refuse everything: two: policy.rego:3: no")
	f.fleet.confirmed = func(ctx context.Context, _ revocation.Change) (revocation.Result, error) {
		<-ctx.Done()
		return revocation.Result{Missing: []string{"one"}}, ctx.Err()
	}
	f.do("PUT", "/api/v1/policy", files(t, "policy.rego", denyDrop)).wantProblem(http.StatusServiceUnavailable, "at one")
}

func TestReplacePolicyRefusesFaults(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		name  string
		files []string
		file  string
		line  int
		text  string
	}{
		{"not Rego", []string{"policy.rego", "package policy\n\nallow if {\n"}, "policy.rego", 0, ""},
		{"an unknown function", []string{"policy.rego", "package policy\n\nallow if nothing_known(1)\n"}, "policy.rego", 3, "nothing_known"},
		{"the network", []string{"policy.rego", "package policy\n\nallow if http.send({\"url\": \"http://h\", \"method\": \"get\"}).status_code == 200\n"}, "policy.rego", 3, "http.send"},
		{"another package", []string{"policy.rego", allowAll, "x.rego", "package arbiter\n\ndecision.allow := true\n"}, "x.rego", 1, "not part of a policy"},
		{"our question", []string{"policy.rego", allowAll, "arbiter/decision.rego", "package policy\n\nallow if true\n"}, "arbiter/decision.rego", 0, ""},
		{"data of ours", []string{"policy.rego", allowAll, "policy/data.json", `{"allow":true}`}, "", 0, "data.policy"},
		{"data that is none", []string{"policy.rego", allowAll, "data.json", `{`}, "data.json", 0, ""},
		{"only data", []string{"data.json", `{}`}, "", 0, "no Rego"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			before := f.policy("").Revision
			problem := f.do("PUT", "/api/v1/policy", files(t, test.files...)).wantProblem(http.StatusUnprocessableEntity, test.text)
			if len(problem.Faults) == 0 {
				t.Fatal("no fault is named")
			}
			first := problem.Faults[0]
			if test.file != "" && first.File != test.file || test.line != 0 && first.Line != test.line || first.Message == "" {
				t.Errorf("fault %+v, want %s:%d", first, test.file, test.line)
			}
			if got := f.policy("").Revision; got != before || len(f.fleet.changes) != 0 {
				t.Errorf("the policy is %s, was %s; waited for %v", got, before, f.fleet.changes)
			}
			var checked api.CheckedPolicy
			f.do("POST", "/api/v1/policy/check", files(t, test.files...)).want(http.StatusOK, &checked)
			if checked.OK || fmt.Sprint(checked.Faults) != fmt.Sprint(problem.Faults) {
				t.Errorf("checked %+v", checked)
			}
			f.do("POST", "/api/v1/policy/try", files(t, test.files...)).wantProblem(http.StatusUnprocessableEntity, test.text)
		})
	}
}

func TestCheckPolicy(t *testing.T) {
	f := newFixture(t)
	bundle := policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(denyDrop), "policy_test.rego": []byte(denyTest)}}
	var got api.CheckedPolicy
	f.do("POST", "/api/v1/policy/check", files(t, "policy.rego", denyDrop, "policy_test.rego", denyTest)).want(http.StatusOK, &got)
	if !got.OK || got.Revision != bundle.Revision() || len(got.Faults) != 0 || got.TestsPassed != 1 {
		t.Errorf("checked %+v", got)
	}
	if f.policy("").Origin != policy.OriginStandard || len(f.fleet.changes) != 0 {
		t.Error("a check changed the policy")
	}
}

// A policy that says of itself that it does not do what it should goes nowhere.
func TestReplacePolicyRunsItsTests(t *testing.T) {
	f := newFixture(t)
	body := files(t, "policy.rego", allowAll, "policy_test.rego", denyTest)
	problem := f.do("PUT", "/api/v1/policy", body).wantProblem(http.StatusUnprocessableEntity, "test_deny_drop")
	if len(problem.Faults) != 1 || problem.Faults[0].File != "policy_test.rego" || problem.Faults[0].Line != 5 {
		t.Errorf("faults %+v", problem.Faults)
	}
	if f.policy("").Origin != policy.OriginStandard {
		t.Error("it decides")
	}
}

// directory is a source with one policy.
type directory struct{ bundle policies.Bundle }

func (*directory) Origin() string { return "directory /etc/policies" }

func (d *directory) Read(context.Context) (policy.Offer, error) {
	return policy.Offer{Bundle: d.bundle}, nil
}

func (*directory) Wait(ctx context.Context) { <-ctx.Done() }

func bundleOf(text string) policies.Bundle {
	return policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(text)}}
}

func TestReplacePolicyRefusesBesideASource(t *testing.T) {
	f := newFixture(t)
	f.serve(&directory{bundleOf(denyDrop)})
	before := f.policy("")
	if before.Source != "directory /etc/policies" || before.Origin != before.Source {
		t.Errorf("shown %+v", before)
	}
	f.do("PUT", "/api/v1/policy", files(t, "policy.rego", allowAll)).wantProblem(http.StatusConflict, "directory /etc/policies")
	if got := f.policy(""); got.Revision != before.Revision {
		t.Errorf("the policy is %s", got.Revision)
	}
	f.do("POST", "/api/v1/policy/check", files(t, "policy.rego", allowAll)).want(http.StatusOK, nil)
}

func TestShowPolicyTellsWhatWasRefused(t *testing.T) {
	f := newFixture(t)
	f.serve(&directory{bundleOf("package policy\n\nallow if x\n")})
	got := f.policy("")
	if got.Origin != policy.OriginStandard || got.Refused == nil || got.Refused.Origin != "directory /etc/policies" ||
		!got.Refused.At.Equal(testTime) || len(got.Refused.Faults) == 0 || got.Refused.Faults[0].Line != 3 {
		t.Errorf("shown %+v, refused %+v", got, got.Refused)
	}
}

// Each of these goes to all three places that take a policy's files.
func TestPolicyFilesReject(t *testing.T) {
	f := newFixture(t)
	many := make([]string, 0, 2002)
	for i := range 1001 {
		many = append(many, fmt.Sprintf("f%d.rego", i), allowAll)
	}
	for _, test := range []struct{ name, body, want string }{
		{"no files", `{}`, "must be given"},
		{"null", `{"files":null}`, "must be given"},
		{"none", `{"files":{}}`, "must be given"},
		{"a list", `{"files":[]}`, "must be an object"},
		{"a number for a text", `{"files":{"policy.rego":1}}`, "must be a string"},
		{"null for a text", `{"files":{"policy.rego":null}}`, "must be a string"},
		{"an unknown member", `{"files":{"policy.rego":""},"origin":"x"}`, "not a field"},
		{"a file twice", `{"files":{"policy.rego":"package a","policy.rego":"package b"}}`, "given twice"},
		{"too many", files(t, many...), "more than 1000"},
		{"up", files(t, "../policy.rego", allowAll), "relative"},
		{"up inside", files(t, "a/../../policy.rego", allowAll), "relative"},
		{"absolute", files(t, "/etc/policy.rego", allowAll), "relative"},
		{"a backslash", files(t, `..\policy.rego`, allowAll), "A to Z"},
		{"a drive", files(t, `C:policy.rego`, allowAll), "A to Z"},
		{"a dot", files(t, "./policy.rego", allowAll), "relative"},
		{"two slashes", files(t, "a//policy.rego", allowAll), "relative"},
		{"a hidden file", files(t, ".rego", allowAll), "dot"},
		{"a hidden directory", files(t, ".git/policy.rego", allowAll), "dot"},
		{"NUL", `{"files":{"a\u0000.rego":""}}`, "A to Z"},
		{"a line break", `{"files":{"a\n.rego":""}}`, "A to Z"},
		{"an escape sequence", `{"files":{"\u001b[2J.rego":""}}`, "A to Z"},
		{"a letter that looks like another", `{"files":{"p\u043elicy.rego":""}}`, "A to Z"},
		{"invalid UTF-8 in a text", "{\"files\":{\"policy.rego\":\"\xff\"}}", "not JSON"},
		{"invalid UTF-8 in a path", "{\"files\":{\"\xff.rego\":\"\"}}", "not JSON"},
		{"a lone surrogate", `{"files":{"policy.rego":"\ud800"}}`, "not JSON"},
		{"a long path", files(t, strings.Repeat("a", 251)+".rego", allowAll), "255 bytes"},
		{"no path", files(t, "", allowAll), "relative"},
		{"another file", files(t, "README.md", "x"), "not read by a policy"},
		{"another extension", files(t, "policy.Rego", allowAll), "not read by a policy"},
		{"another data file", files(t, "users.json", "{}"), "not read by a policy"},
		{"more than 8 MiB", files(t, "policy.rego", strings.Repeat("#", 8<<20+1)), "8 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			for _, way := range []string{"PUT /api/v1/policy", "POST /api/v1/policy/check", "POST /api/v1/policy/try"} {
				method, path, _ := strings.Cut(way, " ")
				if strings.HasSuffix(path, "/try") && (test.body == `{}` || test.body == `{"files":null}`) {
					continue // there it means the policy that decides
				}
				f.do(method, path, test.body).wantProblem(http.StatusBadRequest, test.want)
			}
			if f.policy("").Origin != policy.OriginStandard {
				t.Error("the policy was changed")
			}
		})
	}
}

func TestPolicyBodiesAreBounded(t *testing.T) {
	f := newFixture(t)
	body := func(size int) string {
		whole := files(t, "policy.rego", allowAll)
		return whole + strings.Repeat(" ", size-len(whole))
	}
	for _, way := range []string{"PUT /api/v1/policy", "POST /api/v1/policy/check", "POST /api/v1/policy/try"} {
		method, path, _ := strings.Cut(way, " ")
		f.do(method, path, body(13<<20)).wantProblem(http.StatusRequestEntityTooLarge, "12 MiB")
		f.do(method, path, body(12<<20)).want(http.StatusOK, nil)
	}
	f.do("PUT", "/api/v1/servers/"+someID+"/grants", `{"grants":[]}`+strings.Repeat(" ", 64<<10)).
		wantProblem(http.StatusRequestEntityTooLarge, "64 KiB")
}
