//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// explainedPolicy allows echo, denies add, errs at slow, and says nothing of
// others.
const explainedPolicy = `package policy

default allow := false

allow if {
	input.call.method == "tools/call"
	input.call.tool in data.tools
}

deny contains {"code": "no_sums", "message": "sums are made elsewhere; ask the office"} if input.call.tool == "add"

deny contains {"code": "never", "message": "never"} if {
	input.call.tool == "slow"
	count(data.number) > 0
}
`

// TestPolicyExplains finds a denied, an allowed and an errored request by the
// id of its answer, and tells which rule it was, and where.
func TestPolicyExplains(t *testing.T) {
	g := start(t, "ARBITER_POLICY_DIR=none")
	dir := t.TempDir()
	save(t, filepath.Join(dir, "policy.rego"), explainedPolicy)
	save(t, filepath.Join(dir, "data.json"), `{"tools": ["echo"], "number": 17}`)
	g.apply(t, dir)
	server := g.demo(t)
	_, token := g.addToken(t, server)
	for _, want := range []struct {
		name, tool string
		status     int
		told       []string
	}{
		{"allowed", "echo", 200, []string{"allow", "policy.rego:5"}},
		{"denied", "add", 403, []string{"deny", "policy.rego:10", "no_sums", "sums are made elsewhere; ask the office"}},
		{"denied by no rule", "clock", 403, []string{"deny", "no_rule", "policy.rego:7", "input.call.tool in data.tools"}},
		{"errored", "slow", 503, []string{"error", "policy.rego:14", "count"}},
	} {
		t.Run(want.name, func(t *testing.T) {
			got := g.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "tools/call", `{"name":"`+want.tool+`","arguments":{"text":"not told"}}`)})
			if got.status != want.status {
				t.Fatalf("status %d, %s", got.status, got.body)
			}
			explained := g.explained(t, got.header.Get("arbiter-request-id"))
			for _, text := range want.told {
				if !strings.Contains(explained, text) {
					t.Errorf("is not explained with %q:\n%s", text, explained)
				}
			}
			if strings.Contains(explained, "not told") {
				t.Errorf("an argument's value is shown:\n%s", explained)
			}
		})
	}
	save(t, filepath.Join(dir, "data.json"), `{"tools": ["echo", "clock"], "number": 17}`)
	tried, err := g.cli(t, "", "policy", "try", dir, "--last", "100")
	if err != nil || !regexp.MustCompile(`tools/call clock +deny .*no_rule.* allow`).MatchString(tried) || strings.Count(tried, "tools/call") != 1 {
		t.Errorf("a candidate that differs about one request (%v):\n%s", err, tried)
	}
	eventually(t, 20*time.Second, "metrics equal the log", func() bool {
		log, metrics := g.logged(t), g.measured(t)
		return len(log) >= 3 && maps.Equal(log, metrics)
	})
	if log := g.logged(t); log["allow"] == 0 || log["deny"] < 2 || log["error"] != 1 {
		t.Errorf("logged %v", log)
	}
}

// explained is what a person is told about a request.
func (g *gateway) explained(t *testing.T, id string) string {
	t.Helper()
	var out string
	eventually(t, 20*time.Second, "the decision "+id+" is found", func() bool {
		text, err := g.cli(t, "", "explain", id)
		out = text
		return err == nil
	})
	return out
}

// logged counts the decision records by outcome and reason, and by outcome.
func (g *gateway) logged(t *testing.T) map[string]int {
	t.Helper()
	file, err := os.Open(filepath.Join(g.dir, "decisions.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	counts := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var record struct{ Outcome, Reason string }
		if json.Unmarshal(lines.Bytes(), &record) == nil { // the last one may be half written
			counts[record.Outcome]++
			counts[record.Outcome+" "+record.Reason]++
		}
	}
	return counts
}

var decisionsTotal = regexp.MustCompile(`(?m)^arbiter_decisions_total\{outcome="([a-z]+)",reason="([a-z_]*)"\} (\d+)$`)

// measured counts the same from the metrics.
func (g *gateway) measured(t *testing.T) map[string]int {
	t.Helper()
	resp, err := overSocket(filepath.Join(g.dir, "admin.sock")).Get("http://arbiter/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, line := range decisionsTotal.FindAllStringSubmatch(string(page), -1) {
		var count int
		if _, err := fmt.Sscan(line[3], &count); err != nil {
			t.Fatal(err)
		}
		if count > 0 {
			counts[line[1]] += count
			counts[line[1]+" "+line[2]] += count
		}
	}
	return counts
}
