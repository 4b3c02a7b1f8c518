package policies_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
)

func TestScopesOnlyNarrow(t *testing.T) {
	call := func(method, tool string) policies.Input {
		return policies.Input{Action: policies.ActionCall, Call: policies.Call{Method: method, Tool: tool}}
	}
	stream := policies.Input{Action: policies.ActionOpenStream}
	for _, row := range []struct {
		name   string
		in     policies.Input
		scopes []string // nil: made without scopes
		want   bool
	}{
		{"without scopes, a tool", call("tools/call", "echo"), nil, true},
		{"without scopes, a stream", stream, nil, true},
		{"all tools", call("tools/call", "echo"), []string{"tools:call"}, true},
		{"this tool", call("tools/call", "echo"), []string{"tools:call:echo"}, true},
		{"another tool", call("tools/call", "add"), []string{"tools:call:echo"}, false},
		{"a tool with the allowed one as prefix", call("tools/call", "echo2"), []string{"tools:call:echo"}, false},
		{"a tool in another case", call("tools/call", "Echo"), []string{"tools:call:echo"}, false},
		{"a tool without a name", call("tools/call", ""), []string{"tools:call:echo"}, false},
		{"a tool, connected only", call("tools/call", "echo"), []string{"mcp:connect"}, false},
		{"a list, tools only", call("tools/list", ""), []string{"tools:call"}, false},
		{"a list, connected", call("tools/list", ""), []string{"mcp:connect"}, true},
		{"a method that nobody knows", call("x/y", ""), []string{"mcp:connect"}, true},
		{"a method that nobody knows, bootstrap only", call("x/y", ""), []string{"identity:bootstrap"}, false},
		{"tools/call in another case, connected", call("Tools/Call", ""), []string{"mcp:connect"}, false},
		{"tools/call with a blank, connected", call("tools/call ", ""), []string{"mcp:connect", "tools:call:echo"}, false},
		{"tools/call in another case, all tools", call("Tools/Call", ""), []string{"tools:call"}, true},
		{"a stream, connected", stream, []string{"mcp:connect"}, true},
		{"a stream, tools only", stream, []string{"tools:call"}, false},
		{"no scope at all", call("tools/list", ""), []string{}, false},
		{"a scope of another spelling", stream, []string{"MCP:connect", "mcp:connect ", "mcp"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.in.Scopes, row.in.Narrowed = row.scopes, row.scopes != nil
			got := policies.Decide(row.in)
			if got.Allow != row.want {
				t.Errorf("allow is %v, want %v", got.Allow, row.want)
			}
			if !got.Allow && (got.Reason != policies.ReasonScope || !strings.Contains(got.Text, "needs the scope") || len(got.Scopes) == 0) {
				t.Errorf("the denial says %+v", got)
			}
		})
	}
	if (policies.Decision{}).Allow {
		t.Error("the zero decision allows")
	}
}

func TestDenialTextIsPrintable(t *testing.T) {
	in := policies.Input{Narrowed: true, Action: policies.ActionCall, Call: policies.Call{
		Method: "tools/call", Tool: "a\"b\n\x00" + strings.Repeat("x", 500),
	}}
	got := policies.Decide(in).Text
	if strings.ContainsAny(got, "\n\x00") || len(got) > 400 {
		t.Errorf("text %q", got)
	}
	if !slices.Contains(policies.Decide(in).Scopes, "tools:call") {
		t.Error("the scopes that would help are not named")
	}
}
