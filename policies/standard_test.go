package policies_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

// question is one of the standard policy: made without scopes where scopes is
// nil.
func question(action policies.Action, method, tool string, scopes ...string) *policies.Input {
	in := &policies.Input{
		Principal: policies.Principal{
			Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "t1", Client: "c1", Issuer: "https://idp"},
			Scopes:    scopes, Narrowed: scopes != nil, User: "u1",
		},
		Server: &policies.Server{Name: "demo"}, Transport: "mcp", Action: action,
	}
	if method != "" {
		in.Call = &policies.Call{Method: method, Tool: tool}
	}
	return in
}

func call(method, tool string, scopes ...string) *policies.Input {
	return question(policies.ActionCall, method, tool, scopes...)
}

func decided(t *testing.T, p *policies.Policy, in *policies.Input) policies.Decision {
	t.Helper()
	d, err := answer(t, p, in)
	if err != nil {
		t.Fatal(err)
	}
	if d.Allow == (len(d.Denials) > 0) {
		t.Errorf("allow is %v beside %d denials", d.Allow, len(d.Denials))
	}
	return d
}

func TestScopesOnlyNarrow(t *testing.T) {
	p := compile(t, policies.Standard())
	stream := func(scopes ...string) *policies.Input { return question(policies.ActionOpenStream, "", "", scopes...) }
	item := func(method, tool string, scopes ...string) *policies.Input {
		return question(policies.ActionListItem, method, tool, scopes...)
	}
	none := []string{}
	for _, row := range []struct {
		name string
		in   *policies.Input
		want bool
	}{
		{"without scopes, a tool", call("tools/call", "echo"), true},
		{"without scopes, a stream", stream(), true},
		{"without scopes, a bootstrap", question(policies.ActionBootstrap, "", ""), true},
		{"all tools", call("tools/call", "echo", "tools:call"), true},
		{"this tool", call("tools/call", "echo", "tools:call:echo"), true},
		{"another tool", call("tools/call", "add", "tools:call:echo"), false},
		{"a tool with the allowed one as prefix", call("tools/call", "echo2", "tools:call:echo"), false},
		{"a tool that is a prefix of the allowed one", call("tools/call", "ech", "tools:call:echo"), false},
		{"a tool in another case", call("tools/call", "Echo", "tools:call:echo"), false},
		{"a tool without a name", call("tools/call", "", "tools:call:echo"), false},
		{"a tool without a name, connected only", call("tools/call", "", "mcp:connect"), false},
		{"a tool without a name, a scope without one", call("tools/call", "", "tools:call:"), false},
		{"a tool, connected only", call("tools/call", "echo", "mcp:connect"), false},
		{"a tool, bootstrap only", call("tools/call", "echo", "identity:bootstrap"), false},
		{"a tool with a colon", call("tools/call", "a:b", "tools:call:a"), false},
		{"a tool named like a scope", call("tools/call", "mcp:connect", "mcp:connect"), false},
		{"a tool with a blank behind it", call("tools/call", "echo ", "tools:call:echo"), false},
		{"a list, tools only", call("tools/list", "", "tools:call"), false},
		{"a list, connected", call("tools/list", "", "mcp:connect"), true},
		{"an item, its tool", item("tools/call", "echo", "mcp:connect", "tools:call:echo"), true},
		{"an item, another tool", item("tools/call", "add", "mcp:connect", "tools:call:echo"), false},
		{"an item that is a prompt, connected", item("prompts/get", "", "mcp:connect"), true},
		{"an item that is a prompt, tools only", item("prompts/get", "", "tools:call"), false},
		{"a method that nobody knows", call("x/y", "", "mcp:connect"), true},
		{"a method that nobody knows, bootstrap only", call("x/y", "", "identity:bootstrap"), false},
		{"a stream, connected", stream("mcp:connect"), true},
		{"a stream, tools only", stream("tools:call"), false},
		{"no scope at all", call("tools/list", "", none...), false},
		{"no scope at all, a stream", stream(none...), false},
		{"a scope of another spelling", stream("MCP:connect", "mcp:connect ", "mcp"), false},
		{"a bootstrap, its scope", question(policies.ActionBootstrap, "", "", "identity:bootstrap"), true},
		{"a bootstrap, connected", question(policies.ActionBootstrap, "", "", "mcp:connect", "tools:call"), false},
		{"a rotation, whatever scope", question(policies.ActionRotate, "", "", none...), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := decided(t, p, row.in)
			if got.Allow != row.want {
				t.Errorf("allow is %v, want %v", got.Allow, row.want)
			}
			if !got.Allow && (got.Denials[0].Code != "scope_missing" || !strings.Contains(got.Denials[0].Text, "needs the scope") || len(got.Scopes) == 0) {
				t.Errorf("the denial says %+v", got)
			}
		})
	}
}

func TestGrantsAreAllThereIs(t *testing.T) {
	p := compile(t, policies.Standard())
	for _, row := range []struct {
		name, grants, tool string
		want               bool
	}{
		{"for everybody", `[{"principal":{},"tools":["echo"]}]`, "echo", true},
		{"for this token", `[{"principal":{"id":"t1"},"tools":["echo"]}]`, "echo", true},
		{"for this client and user", `[{"principal":{"client":"c1","user":"u1","issuer":"https://idp","kind":"access_token"},"tools":["*"]}]`, "echo", true},
		{"a beginning", `[{"principal":{},"tools":["ec*"]}]`, "echo", true},
		{"the second of two", `[{"principal":{"id":"x"},"tools":["*"]},{"principal":{"id":"t1"},"tools":["a","echo"]}]`, "echo", true},
		{"nobody", `[]`, "echo", false},
		{"no tool", `[{"principal":{},"tools":[]}]`, "echo", false},
		{"another tool", `[{"principal":{},"tools":["add"]}]`, "echo", false},
		{"another token", `[{"principal":{"id":"t2"},"tools":["*"]}]`, "echo", false},
		{"this token of another user", `[{"principal":{"id":"t1","user":"u2"},"tools":["*"]}]`, "echo", false},
		{"one for the tool, one for the principal", `[{"principal":{"id":"t2"},"tools":["echo"]},{"principal":{"id":"t1"},"tools":["add"]}]`, "echo", false},
		{"a principal that is not said", `[{"tools":["*"]}]`, "echo", false},
		{"tools that are not said", `[{"principal":{}}]`, "echo", false},
		{"a part that nobody knows", `[{"principal":{"team":"red"},"tools":["*"]}]`, "echo", false},
		{"a tool that begins like one", `[{"principal":{},"tools":["ech"]}]`, "echo", false},
		{"a star in the middle", `[{"principal":{},"tools":["e*o"]}]`, "echo", false},
		{"a star in front", `[{"principal":{},"tools":["*cho"]}]`, "echo", false},
		{"a beginning in another case", `[{"principal":{},"tools":["EC*"]}]`, "echo", false},
		{"a call without a tool's name", `[{"principal":{},"tools":["*"]}]`, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := call("tools/call", row.tool)
			in.Server = &policies.Server{Name: "demo", Grants: []byte(row.grants)}
			got := decided(t, p, in)
			if got.Allow != row.want {
				t.Errorf("allow is %v: %+v", got.Allow, got)
			}
			item := call("tools/call", row.tool)
			item.Server, item.Action = in.Server, policies.ActionListItem
			if shown := decided(t, p, item); shown.Allow != got.Allow {
				t.Errorf("the item is shown: %v, the call allowed: %v", shown.Allow, got.Allow)
			}
			in.Call = &policies.Call{Method: "prompts/get", Prompt: row.tool}
			if !decided(t, p, in).Allow {
				t.Error("a grant of tools denies a prompt")
			}
		})
	}
}

// TestGrantsDoNotWidenScopes: both have to suffice, and both are told.
func TestGrantsDoNotWidenScopes(t *testing.T) {
	p := compile(t, policies.Standard())
	in := call("tools/call", "echo", "mcp:connect")
	in.Server = &policies.Server{Name: "demo", Grants: []byte(`[{"principal":{},"tools":["*"]}]`)}
	if decided(t, p, in).Allow {
		t.Error("a grant widens a scope")
	}
	in.Server = &policies.Server{Name: "demo", Grants: []byte(`[]`)}
	got := decided(t, p, in)
	if len(got.Denials) != 2 || got.Denials[0].Code != "scope_missing" || got.Denials[1].Code != "tool_not_granted" {
		t.Errorf("denials %+v", got.Denials)
	}
	if want := []string{"tools:call", "tools:call:echo"}; !slices.Equal(got.Scopes, want) {
		t.Errorf("scopes %q, want %q", got.Scopes, want)
	}
}

// TestTextsOfCallersArePrintable: what a denial repeats of a caller's own words
// stays one line, while the policy sees the words themselves.
func TestTextsOfCallersArePrintable(t *testing.T) {
	p := compile(t, policies.Standard())
	exact := compile(t, rego("package policy\nallow if input.call.tool == input.server.name\n"))
	for _, tool := range []string{
		"a\"b", "a\nb", "a\x00b", "a\u2028b", "\u009b31m", "{{.}}", "${x}", "%s%d%!", "</script>", "é漢\U0001F600", strings.Repeat("x", 4000), `\"`, "'; drop",
	} {
		in := call("tools/call", tool, "mcp:connect")
		in.Server = &policies.Server{Name: tool, Labels: map[string]string{tool: tool}}
		if d := decided(t, exact, in); !d.Allow {
			t.Errorf("%q is not what the policy saw", tool)
		}
		d := decided(t, p, in)
		for _, text := range append([]string{d.Denials[0].Text}, d.Scopes...) {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '\u2028' || r >= 0x7f && r < 0xa0 }) || len([]rune(text)) > 501 {
				t.Errorf("text %q", text)
			}
		}
	}
}
