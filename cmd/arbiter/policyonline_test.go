package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

const (
	allowAll = "package policy\n\nallow if true\n"
	denyDrop = "package policy\n\nallow if input.call.tool != \"drop\"\n\n" +
		"deny contains {\"code\": \"no_drop\", \"message\": \"drop is not for agents\"} if input.call.tool == \"drop\"\n"
)

// writtenPolicy writes a policy below the data directory.
func (s *shell) writtenPolicy(name, text string) string {
	s.t.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.write(name+"/policy.rego", text)
	return dir
}

// recorded keeps the record of a call of one tool and returns its id.
func (s *shell) recorded(server, revision, tool string, edit func(*record.Record)) string {
	s.t.Helper()
	id, err := identity.ParseServerID(server)
	if err != nil {
		s.t.Fatal(err)
	}
	r := &record.Record{
		ID: "r-" + tool, Time: cliTime, Revision: revision, Replica: "one",
		Input: record.Input{
			Principal: policies.Principal{Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "t1", Name: "age\x1bnt"}},
			Server:    record.NewServer(&policies.Server{ID: id, Name: "demo"}),
			Transport: "mcp", Action: policies.ActionCall,
			Call:    &record.Call{Call: policies.Call{Method: "tools/call", Tool: tool}},
			Request: policies.Request{Method: "POST", Path: "/servers/" + server + "/mcp", Source: "10.0.0.7"},
		},
		Result: &record.Result{Decision: policies.Decision{Allow: true}}, Outcome: record.Allow, Reason: "allowed",
	}
	edit(r)
	if err := s.store.AddDecisions(s.t.Context(), []store.Decision{{ID: r.ID, Server: server, Time: r.Time, JSON: r.Append(nil)}}); err != nil {
		s.t.Fatal(err)
	}
	return r.ID
}

func TestPolicyApplyShowTry(t *testing.T) {
	s := newShell(t).serve()
	s.status.Replicas = []api.ReplicaStatus{{Name: "a", Connected: true, AppliedRevision: 1 << 40}, {Name: "b", Connected: true}, {Name: "c"}, {Name: "d", Connected: true, LastError: "policy.rego:1: no"}}
	srv := printed[api.Server](s.run("server", "add", "demo", "--mcp", "http://h", "--json"))
	s.run("policy", "apply", s.writtenPolicy("one", allowAll)).ok("decides: 1 of 2 replicas confirmed", "100 streams ended", "12 ms")
	shown := printed[api.Policy](s.run("policy", "show", "--json"))
	if len(shown.Files) != 1 || shown.Files[0].Text == nil || *shown.Files[0].Text != allowAll {
		t.Errorf("shown %+v", shown)
	}
	s.run("policy", "show").ok(shown.Revision, "API", "policy.rego (30 bytes)", "a runs it", "b does not run it yet", "c is not connected", "d refused its settings, and refuses everything once its lease is over: policy.rego:1: no")

	s.recorded(srv.ID, shown.Revision, "echo", func(*record.Record) {})
	s.recorded(srv.ID, shown.Revision, "drop", func(*record.Record) {})
	two := s.writtenPolicy("two", denyDrop)
	s.run("policy", "try", two).ok("r-drop", "access_token:t1", "tools/call drop", "allow", "deny no_drop", "2 records: 1 answered the same, 1 otherwise")
	s.run("policy", "try").ok("2 records: 2 answered the same, 0 otherwise")
	if got := printed[api.TriedPolicy](s.run("policy", "try", two, "--last", "1", "--json")); got.Records != 1 || got.Different != 1 {
		t.Errorf("tried %+v", got)
	}
	s.run("policy", "try", two, "--decision", "r-echo").ok("1 record: 1 answered the same")
	if got := printed[api.Policy](s.run("policy", "show", "--json")); got.Revision != shown.Revision {
		t.Error("a candidate decides")
	}
}

func TestPolicyShowWritesFiles(t *testing.T) {
	s := newShell(t).serve()
	dir := s.writtenPolicy("one", denyDrop)
	if err := os.MkdirAll(filepath.Join(dir, "teams"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("one/teams/data.json", `{"a":1}`)
	s.run("policy", "apply", dir).ok()
	out := filepath.Join(s.dir, "out")
	got := s.run("policy", "show", "--files", out).ok("teams/data.json")
	if !strings.Contains(got.stderr, "wrote 2 files") {
		t.Errorf("stderr %q", got.stderr)
	}
	for name, want := range map[string]string{"policy.rego": denyDrop, "teams/data.json": `{"a":1}`} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(text) != want {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	s.run("policy", "show", "--files", out).fails("is not empty")
}

// What a server answers is written below the directory, or not at all.
func TestPolicyFilesStayInTheirDirectory(t *testing.T) {
	text := "x"
	for _, path := range []string{"../up.rego", "a/../../up.rego", "/etc/up.rego", "."} {
		dir := t.TempDir()
		if err := writePolicy(filepath.Join(dir, "in"), []api.PolicyFile{{Path: path, Text: &text}}); err == nil {
			t.Errorf("%s was written", path)
		}
		if found, err := filepath.Glob(filepath.Join(dir, "*.rego")); err != nil || len(found) > 0 {
			t.Errorf("%s made %v, %v", path, found, err)
		}
	}
	if err := writePolicy(t.TempDir(), []api.PolicyFile{{Path: "data.yaml"}}); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("a file without text: %v", err)
	}
}

// elsewhere is a source with one policy, which may be none.
type elsewhere string

func (elsewhere) Origin() string { return "directory /etc/policies" }

func (e elsewhere) Read(context.Context) (policy.Offer, error) {
	return policy.Offer{Bundle: policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(e)}}}, nil
}

func (elsewhere) Wait(ctx context.Context) { <-ctx.Done() }

func TestPolicyApplyBesideASource(t *testing.T) {
	s := newShell(t)
	s.source = elsewhere(allowAll)
	s.serve()
	s.run("policy", "apply", s.writtenPolicy("good", denyDrop)).fails("policies come from directory /etc/policies: change them there; nothing was changed")
	s.run("policy", "show").ok("changed by", "directory /etc/policies")
}

func TestPolicyCommandsTellFaults(t *testing.T) {
	s := newShell(t).serve()
	bad := s.writtenPolicy("bad", "package policy\n\nallow if nothing_known(1)\n\nallow if other(2)\n")
	for _, args := range [][]string{{"policy", "apply", bad}, {"policy", "try", bad}} {
		out := s.run(args...)
		if out.code != 1 || strings.Count(out.stderr, "\n") != 1 || !strings.Contains(out.stderr, "faults in this policy") ||
			!strings.Contains(out.stdout, "policy.rego:3: ") || !strings.Contains(out.stdout, "policy.rego:5: ") {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, out.code, out.stdout, out.stderr)
		}
	}
	s.run("policy", "apply", filepath.Join(s.dir, "none")).fails("no directory or bundle")
	good := s.writtenPolicy("good", allowAll)
	s.run("policy", "try", good, "--last", "0").fails("last: must be 1 to 10000")
	s.run("policy", "try", good, "--last", "3", "--decision", "x").fails("only one")
	s.run("policy", "try", good, "--decision", "none").fails("no decision with this id")
	s.run("policy", "try", "--decision", "arb_at_x").fails("value of a token")
}
