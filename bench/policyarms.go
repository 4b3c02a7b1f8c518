package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/arbiter-gateway/arbiter/bench/child"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Names of the arms of policies: each policy in Arbiter, and in a gRPC server
// that embeds stock OPA.
const (
	armOPA     = "opa"
	armRBAC    = "rpc-rbac"
	armOPARBAC = "opa-rbac"
	armArgs    = "rpc-arguments"
	armOPAArgs = "opa-arguments"
)

var policyArms = []string{armNoop, armRPC, armOPA, armRBAC, armOPARBAC, armArgs, armOPAArgs}

// Size of the role-based policy.
const (
	rbacRules   = 40
	rbacServers = 10_000
)

// nobody is who calls the baselines, and nowhere the server that they call.
const (
	nobody  = "none"
	nowhere = "00000000-0000-4000-8000-000000000000"
)

// policyPair is one policy, measured in both.
type policyPair struct {
	ours, theirs string // names of the arms
	what         string
	files        func(server, principal string) map[string][]byte // nil: the standard policy
}

var policyPairs = []policyPair{
	{armRPC, armOPA, "the standard policy", nil},
	{armRBAC, armOPARBAC, fmt.Sprintf("%d rules over %d servers", rbacRules, rbacServers), rbac},
	{armArgs, armOPAArgs, "a policy that reads arguments", arguments},
}

// addPolicies makes the arms of every policy that is asked for.
func (b *bench) addPolicies(ctx context.Context, gateway *arbiter) error {
	for _, pair := range policyPairs {
		if pair.files != nil {
			if err := b.addOurs(ctx, gateway, pair); err != nil {
				return fmt.Errorf("%s: %w", pair.ours, err)
			}
		}
		if err := b.addTheirs(ctx, gateway, pair); err != nil {
			return fmt.Errorf("%s: %w", pair.theirs, err)
		}
	}
	return nil
}

// addOurs starts another Arbiter and gives it the policy.
func (b *bench) addOurs(ctx context.Context, like *arbiter, pair policyPair) error {
	g, err := b.startArbiter(ctx, pair.ours, like.program)
	if err != nil {
		return err
	}
	server, err := g.addServer(ctx, "bench", b.upstream, jsonPath)
	if err != nil {
		return err
	}
	var made struct{ ID, Token string }
	if err := g.object(ctx, &made, "token", "create", server); err != nil {
		return err
	}
	dir := filepath.Join(b.dir, pair.ours+"-policy")
	if err := writeFiles(dir, pair.files(server, made.ID)); err != nil {
		return err
	}
	if _, err := child.Output(g.command(ctx, "policy", "apply", dir)); err != nil {
		return err
	}
	b.arms = append(b.arms, b.gatewayArm(g, pair.ours, "Envoy + Arbiter, "+pair.what, "/servers/"+server+"/rpc", callHeaders(made.Token)))
	return nil
}

// addTheirs starts the server with stock OPA, and an Envoy that asks it.
func (b *bench) addTheirs(ctx context.Context, gateway *arbiter, pair policyPair) error {
	files := policies.Standard().Files
	if pair.files != nil {
		files = pair.files(nowhere, nobody)
	}
	socket, pid, err := b.startOPA(ctx, pair.theirs, files)
	if err != nil {
		return err
	}
	return b.addBaseline(ctx, gateway, authorizer{pair.theirs, "Envoy + a server that embeds stock OPA, " + pair.what, socket, pid})
}

// startOPA runs the server with stock OPA and returns its socket and process id.
func (b *bench) startOPA(ctx context.Context, name string, files map[string][]byte) (socket string, pid int, err error) {
	program, err := b.build(ctx, "./bench/opa")
	if err != nil {
		return "", 0, err
	}
	question, err := os.ReadFile(filepath.Join("policies", "decision.rego"))
	if err != nil {
		return "", 0, err
	}
	files = maps.Clone(files)
	files["decision.rego"] = question
	if files["data.json"] == nil {
		files["data.json"] = []byte("{}")
	}
	delete(files, "policy_test.rego")
	dir, known := filepath.Join(b.dir, name), filepath.Join(b.dir, name+".json")
	if err := writeFiles(dir, files); err != nil {
		return "", 0, err
	}
	if err := os.WriteFile(known, encode(map[string]any{
		"tokens":  map[string]any{nobody: map[string]any{"kind": "access_token", "id": nobody, "name": "bench", "server": nowhere}},
		"servers": map[string]any{nowhere: map[string]any{"id": nowhere, "name": "bench"}},
	}), 0o600); err != nil {
		return "", 0, err
	}
	socket = filepath.Join(b.dir, name+".sock")
	p, _, err := child.Start(child.Command(ctx, program, "-socket", socket, "-policy", dir, "-table", known), name+"-server", b.dir, true)
	if err != nil {
		return "", 0, err
	}
	b.running = append(b.running, p)
	return socket, p.PID(), nil
}

func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// encode writes what can be nothing but JSON.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// rbac has a rule for each role, and data for each server: who has which role
// there. The one that allows the call is the last.
func rbac(server, principal string) map[string][]byte {
	var rules strings.Builder
	rules.WriteString("package policy\n\nroles := data.rbac.servers[input.server.id].members[input.principal.id]\n")
	for i := range rbacRules {
		prefix := fmt.Sprintf("tool%02d_", i)
		if i == rbacRules-1 {
			prefix = "ec" // of echo
		}
		fmt.Fprintf(&rules, "\nallow if {\n\t%q in roles\n\tinput.call.method == \"tools/call\"\n\tstartswith(input.call.tool, %q)\n}\n", role(i), prefix)
	}
	servers := map[string]any{}
	for i := range rbacServers {
		id := fmt.Sprintf("00000000-0000-4000-9000-%012d", i)
		servers[id] = map[string]any{"members": map[string]any{fmt.Sprintf("principal-%d", i): []string{role(i % rbacRules)}}}
	}
	servers[server] = map[string]any{"members": map[string]any{principal: []string{role(3), role(rbacRules - 1)}}}
	return map[string][]byte{
		"policy.rego": []byte(rules.String()),
		"data.json":   encode(map[string]any{"rbac": map[string]any{"servers": servers}}),
	}
}

func role(i int) string { return fmt.Sprintf("role%02d", i) }

// arguments looks at what the tool is called with.
func arguments(string, string) map[string][]byte {
	return map[string][]byte{"policy.rego": []byte(`package policy

allow if {
	input.call.method == "tools/call"
	is_string(input.call.arguments.text)
	startswith(input.call.arguments.text, "xxxx")
}

deny contains {"code": "not_this_text", "message": "this text is not for this tool"} if contains(input.call.arguments.text, "forbidden")
`)}
}
