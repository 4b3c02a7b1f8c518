//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The policies that TestPolicyIsLive edits.
const (
	livePolicy = `# METADATA
# title: Everything but paying
package policy

default allow := false

allow if input.action in {"call", "list_item", "open_stream"}

deny contains {"code": "not_today", "message": "REASON"} if input.call.tool == "pay"
`
	brokenPolicy = `package policy

allow if true

deny contains {"code": "not_today"} if input.principle.id == "x"
`
	livePolicyTest = `package policy_test

import data.policy

test_allow_the_stream if {
	policy.allow with input as {"action": "open_stream", "principal": {"kind": "access_token", "id": "x"}}
}
`
)

func livePolicyThatSays(reason string) string {
	return strings.Replace(livePolicy, "REASON", reason, 1)
}

// TestPolicyIsLive edits a policy under `arbiter up` as its author would: what
// is saved holds, what is broken changes nothing and says where, what is mended
// holds again, and streams that it would not open end.
func TestPolicyIsLive(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.rego")
	save(t, policy, livePolicyThatSays("first"))
	save(t, filepath.Join(dir, "policy_test.rego"), livePolicyTest)
	g := start(t, "ARBITER_POLICY_DIR="+dir)
	server := g.addServer(t, toolbox(t, "get", "pay"), "")
	_, token := g.addToken(t, server)
	listener, a := g.agent(t, server, token, true), g.agent(t, server, token, false)
	eventually(t, 20*time.Second, "the stream is open", func() bool { return listener.gets.open.Load() == 1 })
	a.isTold(t, "pay", nil, "first")
	a.does(t, "get", nil)
	if _, err := g.cli(t, "", "policy", "apply", dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("applying over the API beside a directory: %v, want a refusal that names it", err)
	}

	var took []time.Duration
	for _, reason := range []string{"a better", "an even better", "second"} {
		took = append(took, g.edit(t, a, policy, reason))
	}
	for _, broken := range []struct{ file, text, where string }{
		{"policy.rego", brokenPolicy, "policy.rego:5"},
		{"policy.rego", "package policy\n\nallow if {", "policy.rego:3"},
		{"policy.rego", strings.Replace(livePolicy, `, "open_stream"`, "", 1), "policy_test.rego:5"},
		{"data.json", `{"a": 1,}`, "data.json"},
	} {
		path := filepath.Join(dir, broken.file)
		before, _ := os.ReadFile(path)
		save(t, path, broken.text)
		g.refusesAt(t, broken.where)
		a.isTold(t, "pay", nil, "second")
		a.does(t, "get", nil)
		if before == nil {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else {
			save(t, path, string(before))
		}
		eventually(t, 20*time.Second, "nothing is refused any more", func() bool { return g.policyFault(t) == "" })
	}
	took = append(took, g.edit(t, a, policy, "third"), g.edit(t, a, policy, "a last"))
	if open, ended := listener.gets.open.Load(), listener.gets.ended.Load(); open != 1 || ended != 0 {
		t.Errorf("%d streams are open and %d have ended, though each policy would open them", open, ended)
	}

	slices.Sort(took)
	t.Logf("%d edits, live after %v in the median, %v at the most; want <= 1 s", len(took), took[len(took)/2], took[len(took)-1])
	if took[len(took)/2] > liveMost {
		t.Errorf("edits are live after %v", took)
	}

	if err := os.Remove(filepath.Join(dir, "policy_test.rego")); err != nil {
		t.Fatal(err)
	}
	save(t, policy, strings.Replace(livePolicyThatSays("fourth"), `, "open_stream"`, "", 1))
	eventually(t, 20*time.Second, "the stream has ended", func() bool { return listener.gets.ended.Load() == 1 })
	a.isTold(t, "pay", nil, "fourth")
	a.does(t, "get", nil)
	session := g.session(t, server, token)
	got := g.do(t, call{method: "GET", path: "/servers/" + server + "/mcp", token: token, header: map[string]string{"Mcp-Session-Id": session}})
	if got.status != 403 {
		t.Errorf("opening a stream that the policy denies: status %d, %s", got.status, got.body)
	}
}

// liveMost is three times what is promised: this machine may be busy.
const liveMost = 3 * time.Second

// edit saves another reason, waits until a call is told it, and says how long
// that took.
func (g *gateway) edit(t *testing.T, a *agent, policy, reason string) time.Duration {
	t.Helper()
	began := time.Now()
	save(t, policy, livePolicyThatSays(reason))
	eventually(t, 20*time.Second, "an edit is live", func() bool {
		text, _, _ := a.call(t, "pay", nil)
		return strings.Contains(text, reason)
	})
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("live after %v; want <= 1 s", took)
	return took
}

// policyFault is what is wrong with the policy directory, as the API says it.
func (g *gateway) policyFault(t *testing.T) string {
	t.Helper()
	out, err := g.cli(t, "", "policy", "show")
	if err != nil {
		t.Fatal(err)
	}
	_, refused, _ := strings.Cut(out, "refused")
	return refused
}

// refusesAt waits until people are told which file and line is wrong: by the
// command line, by doctor, and in the log.
func (g *gateway) refusesAt(t *testing.T, where string) {
	t.Helper()
	eventually(t, 20*time.Second, where+" is shown as refused", func() bool { return strings.Contains(g.policyFault(t), where) })
	if out, err := g.cli(t, "", "doctor"); err == nil || !strings.Contains(out, where) {
		t.Errorf("doctor (%v) does not say %s:\n%s", err, where, out)
	}
	log, err := os.ReadFile(g.log.Name())
	if err != nil || !strings.Contains(string(log), where) {
		t.Errorf("the log does not say %s: %v", where, err)
	}
}
