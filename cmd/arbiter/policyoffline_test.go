package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
)

const (
	cliPolicy = "package policy\n\nallow if input.call.tool == \"read\"\n\ndeny contains {\"code\": \"late\", \"message\": \"it is late\"} if {\n\tinput.principal.name == \"late\"\n}\n"
	cliTests  = "package policy_test\n\nimport data.policy\n\ntest_allow_reading if {\n\tprint(\"looking\")\n\tpolicy.allow with input.call.tool as \"read\"\n}\n"
	cliInput  = `{"principal":{"kind":"access_token","id":"t1"},"action":"call","call":{"method":"tools/call","tool":"write"}}`
)

// policyDir writes files below a directory of the shell.
func (s *shell) policyDir(files ...string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return dir
}

// archived writes an OPA bundle.
func (s *shell) archived(files ...string) string {
	s.t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: "/" + files[i], Size: int64(len(files[i+1])), Mode: 0o600}); err != nil {
			s.t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		s.t.Fatal(err)
	}
	return s.write("bundle.tar.gz", out.String())
}

// refused wants exit code 1, each of parts in the output, and want on stderr.
func (o outcome) refused(want string, parts ...string) {
	o.t.Helper()
	if o.code != 1 || !strings.Contains(o.stderr, want) || strings.Count(o.stderr, "\n") != 1 {
		o.t.Errorf("exit code %d, stderr %q; want %q", o.code, o.stderr, want)
	}
	for _, part := range parts {
		if !strings.Contains(o.stdout, part) {
			o.t.Errorf("output has no %q:\n%s", part, o.stdout)
		}
	}
}

func TestPolicyCheck(t *testing.T) {
	s := newShell(t)
	good := s.policyDir("policy.rego", cliPolicy, "policy_test.rego", cliTests)
	s.run("policy", "check", good).ok("no fault in 2 files", "revision ")
	if got := printed[checkedPolicy](s.run("policy", "check", good, "--json")); !got.Tests || len(got.Files) != 2 || len(got.Revision) != 16 || got.Version != 0 {
		t.Errorf("%+v", got)
	}
	archive := s.archived("policy.rego", cliPolicy)
	if out := s.run("policy", "check", archive).ok("no fault in 1 file;"); !strings.Contains(out.stderr, "there are no tests") {
		t.Errorf("stderr %q", out.stderr)
	}
	bad := s.policyDir("policy.rego", "package policy\n\nallow if inptu.action\n\ndeny contains 1 if {\n\tx := 1\n}\n")
	s.run("policy", "check", bad).refused("2 faults", filepath.Join(bad, "policy.rego")+":3: ", filepath.Join(bad, "policy.rego")+":6: ")
	out := s.run("policy", "check", bad, "--json")
	out.refused("2 faults", `"line": 3`, `"file": "policy.rego"`)
	s.run("policy", "check", s.archived("policy.rego", "package policy\n\nallow if {\n")).refused("fault", "policy.rego:4: ")
}

func TestPolicySourceRejects(t *testing.T) {
	s := newShell(t)
	dir, archive, key := s.policyDir("policy.rego", cliPolicy), s.archived("policy.rego", cliPolicy), s.write("key.pem", "no key")
	for _, command := range [][]string{{"check"}, {"test"}, {"eval", "--input", "-"}} {
		for _, test := range []struct {
			name, want string
			args       []string
		}{
			{"missing", "there is no directory or bundle", []string{filepath.Join(dir, "nowhere")}},
			{"empty", "there is no Rego", []string{t.TempDir()}},
			{"a file of it", "give the directory", []string{filepath.Join(dir, "policy.rego")}},
			{"no archive", "not a whole gzip-compressed tar archive", []string{key}},
			{"a key for a directory", "a directory is not signed", []string{dir, "--key", key}},
			{"a scope alone", "--scope", []string{dir, "--scope", "x"}},
			{"a key that is none", "--key: the key is not PEM", []string{archive, "--key", key}},
			{"no directory", "expected", nil},
		} {
			t.Run(command[0]+" "+test.name, func(t *testing.T) {
				s.t = t
				s.run(append(append([]string{"policy"}, command...), test.args...)...).fails(test.want)
			})
		}
	}
}

func TestPolicyCheckRejectsUnsignedBundles(t *testing.T) {
	s := newShell(t)
	key := s.write("key.pem", "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n")
	s.run("policy", "check", s.archived("policy.rego", cliPolicy), "--key", key).fails("the bundle is not signed")
}

func TestPolicyTest(t *testing.T) {
	s := newShell(t)
	dir := s.policyDir("policy.rego", cliPolicy, "policy_test.rego", cliTests)
	if out := s.run("policy", "test", dir).ok("1 passed, 0 failed"); strings.Contains(out.stdout, "test_allow_reading") {
		t.Errorf("output %s", out.stdout)
	}
	s.run("policy", "test", dir, "-v").ok("ok    "+filepath.Join(dir, "policy_test.rego")+":5 test_allow_reading", "    looking")
	s.run("policy", "test", dir, "--coverage").ok("% of the lines", "not in "+filepath.Join(dir, "policy.rego")+": 5")
	if got := printed[policies.Report](s.run("policy", "test", dir, "--json")); len(got.Passed) != 1 || len(got.Failed) != 0 {
		t.Errorf("%+v", got)
	}
	failing := s.policyDir("policy.rego", cliPolicy, "policy_test.rego", cliTests+"\ntest_deny if count(policy.deny) == 1\n")
	s.run("policy", "test", failing).refused("1 test failed", "FAIL  "+filepath.Join(failing, "policy_test.rego")+":10 test_deny: line 10 does not hold: count(policy.deny) == 1", "1 passed, 1 failed")
	s.run("policy", "test", failing, "--json").refused("1 test failed", `"name": "test_deny"`)
	s.run("policy", "test", s.policyDir("policy.rego", cliPolicy)).ok("there are no tests")
	s.run("policy", "test", s.policyDir("policy.rego", cliPolicy, "a_test.rego", "package policy_test\n\ntest_x if time.now_ns()\n")).refused("1 fault", "a_test.rego:3: ")
}

func TestPolicyEval(t *testing.T) {
	s := newShell(t)
	dir, file := s.policyDir("policy.rego", cliPolicy), s.write("input.json", cliInput)
	denied := s.run("policy", "eval", dir, "--input", file).ok(`"allow": false`, `"code": "no_rule"`)
	if out := s.runWith(cliInput, "policy", "eval", dir, "--input", "-").ok(); out.stdout != denied.stdout {
		t.Errorf("from stdin %s", out.stdout)
	}
	s.runWith(strings.Replace(cliInput, "write", "read", 1), "policy", "eval", s.archived("policy.rego", cliPolicy), "--input", "-").ok(`"allow": true`)
	s.run("policy", "eval", dir, "--input", file, "--explain").ok(`"allow": false`, "what would have allowed it", "policy.rego:3  allow", `does not hold at policy.rego:3  input.call.tool == "read"`)
	named := strings.Replace(cliInput, `"id":"t1"`, `"id":"t1","name":"late"`, 1)
	s.runWith(named, "policy", "eval", dir, "--input", "-", "--explain").ok(`"message": "it is late"`, "rules that hold", `policy.rego:5  deny contains {"code": "late", "message": "it is late"}`)
	got := printed[evaluated](s.runWith(named, "policy", "eval", dir, "--input", "-", "--explain", "--json"))
	if got.Allow || len(got.Deny) != 1 || got.Explanation == nil || len(got.Explanation.Fired) != 1 || len(got.Explanation.Missing) != 1 {
		t.Errorf("%+v", got)
	}
	full := s.policyDir("policy.rego", "package policy\n\nallow := true\n\nhide := true\n\nscopes_needed := {\"a\"}\n\nheaders := {\"x-arbiter-policy-a\": \"b\"}\n\nlimits := {{\"by\": [\"server\"], \"rate\": 0.5, \"burst\": 2}}\n")
	s.run("policy", "eval", full, "--input", file).ok(`"hide": true`, `"scopes_needed": [`, `"x-arbiter-policy-a": "b"`, `"rate": 0.5`)
}

func TestPolicyEvalRejects(t *testing.T) {
	s := newShell(t)
	dir := s.policyDir("policy.rego", cliPolicy)
	s.run("policy", "eval", dir).fails("--input")
	s.run("policy", "eval", dir, "--input", filepath.Join(dir, "nowhere")).fails("--input: open")
	s.runWith("{", "policy", "eval", dir, "--input", "-").fails("--input: this is not JSON")
	s.runWith(strings.Replace(cliInput, `"tool"`, `"tol"`, 1), "policy", "eval", dir, "--input", "-").fails("--input: input.call: Additional property tol")
	s.runWith(strings.Repeat(" ", inputMost+1), "policy", "eval", dir, "--input", "-").fails("more than 16777216 bytes")
	broken := s.policyDir("policy.rego", "package policy\n\nallow if to_number(input.call.tool) > 1\n")
	s.runWith(cliInput, "policy", "eval", broken, "--input", "-").fails("to_number")
	s.runWith(cliInput, "policy", "eval", broken, "--input", "-", "--explain").fails("the policy gives no clear answer: policy.rego:3: to_number")
	s.runWith(cliInput, "policy", "eval", broken, "--input", "-", "--explain", "--json").refused("no clear answer", `"fault"`)
	s.runWith(cliInput, "policy", "eval", s.policyDir("policy.rego", "package policy\n\nallow if {\n"), "--input", "-").refused("fault", "policy.rego:4: ")
}
