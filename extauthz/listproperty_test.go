package extauthz_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// offered is what the upstream of the property test has, by kind.
var offered = map[string][]string{
	"tools":     {"add", "echo", "clock", "delete_all", "Echo", "ü", `a"b`},
	"prompts":   {"greet", "echo", "delete_all"},
	"resources": {"file:///a", "file:///b/c", "echo"},
}

// usedBy is how an item of a kind is used, and what names it.
var usedBy = map[string][3]string{
	"tools": {"tools/call", "name", "tool"}, "prompts": {"prompts/get", "name", "prompt"}, "resources": {"resources/read", "uri", "resource"},
}

// drawCondition draws one line of a rule's body.
func drawCondition(t *rapid.T) string {
	kind := rapid.SampledFrom([]string{"tools", "prompts", "resources"}).Draw(t, "kind")
	name := fmt.Sprintf("%q", rapid.SampledFrom(offered[kind]).Draw(t, "name"))
	about := "input.call." + usedBy[kind][2]
	return rapid.SampledFrom([]string{
		about + " == " + name,
		about + " != " + name,
		"startswith(" + about + ", " + fmt.Sprintf("%q", rapid.SampledFrom([]string{"e", "file:///b", "delete_"}).Draw(t, "start")) + ")",
		"lower(" + about + ") == lower(" + name + ")",
		"not " + about,
		"input.call.method == " + fmt.Sprintf("%q", usedBy[kind][0]),
		"input.principal.name == \"Zoë\"",
		"count([1 | \"tools:call:echo\" in input.principal.scopes]) > 0",
		"count([1 | some grant in input.server.grants; " + about + " in grant.tools]) > 0",
		"not input.server.grants",
		"input.transport == \"mcp\"",
		"input.call.protocol_version == \"2025-11-25\"",
		"input.server.name != \"demo\"",
	}).Draw(t, "condition")
}

// drawPolicy draws rules that say the same of a call and of the item it would
// use, and never say no to listing.
func drawPolicy(t *rapid.T) string {
	out := "package policy\nallow if endswith(input.call.method, \"/list\")\n"
	for range rapid.IntRange(1, 4).Draw(t, "allow rules") {
		conditions := rapid.SliceOfN(rapid.Custom(drawCondition), 1, 3).Draw(t, "conditions")
		out += "allow if {\n\t" + strings.Join(conditions, "\n\t") + "\n}\n"
	}
	for range rapid.IntRange(0, 2).Draw(t, "deny rules") {
		conditions := rapid.SliceOfN(rapid.Custom(drawCondition), 1, 2).Draw(t, "conditions")
		out += "deny contains {\"code\": \"no\", \"message\": \"No.\"} if {\n\tnot endswith(input.call.method, \"/list\")\n\t" + strings.Join(conditions, "\n\t") + "\n}\n"
	}
	return out
}

// TestPropertyListIsWhatMayBeCalled: whatever the policy says, a list holds
// exactly the items for which a call would be allowed.
func TestPropertyListIsWhatMayBeCalled(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	guard := f.dial()
	callers := [][]string{nil, {"mcp:connect"}, {"mcp:connect", "tools:call:echo"}}
	var in []request
	for _, scopes := range callers {
		_, value := f.token(srv.GetId(), scopes...)
		session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
		in = append(in, mcpCall(srv.GetId(), value, "").with("mcp-session-id", session))
	}
	shown, hidden := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		srv.Grants = rapid.SampledFrom([][]byte{nil, []byte(`[{"principal":{},"tools":["echo","clock"]}]`)}).Draw(rt, "grants")
		f.push(nil, nil, []*pb.Server{srv})
		source := drawPolicy(rt)
		f.pushPolicy(source)
		caller := in[rapid.IntRange(0, len(in)-1).Draw(rt, "caller")]
		stream := rapid.Bool().Draw(rt, "stream")
		for kind := range offered {
			want := callable(f, caller, kind)
			if got := listed(t, guard, caller, kind, stream); !slices.Equal(got, want) {
				rt.Fatalf("%s: listed %q, callable %q, policy:\n%s", kind, got, want, source)
			}
			shown, hidden = shown+len(want), hidden+len(offered[kind])-len(want)
		}
	})
	if shown == 0 || hidden == 0 {
		t.Errorf("%d items were shown and %d hidden: the test says nothing", shown, hidden)
	}
}

// callable are the items of a kind that Check lets a caller use.
func callable(f *fixture, caller request, kind string) (out []string) {
	for _, name := range offered[kind] {
		params, _ := json.Marshal(map[string]string{usedBy[kind][1]: name})
		caller.body = `{"jsonrpc":"2.0","id":1,"method":"` + usedBy[kind][0] + `","params":` + string(params) + `}`
		if f.mustCheck(caller).GetOkResponse() != nil {
			out = append(out, name)
		}
	}
	return out
}

// listed are the items of a kind that Guard lets a caller see.
func listed(t *testing.T, guard *envoySide, caller request, kind string, stream bool) (out []string) {
	t.Helper()
	caller.body = `{"jsonrpc":"2.0","id":1,"method":"` + kind + `/list"}`
	var items []map[string]string
	for _, name := range offered[kind] {
		items = append(items, map[string]string{usedBy[kind][1]: name})
	}
	body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "result": map[string]any{kind: items}})
	text, media := string(body), jsonMedia
	if stream {
		text, media = "data: "+text+"\n\n", sseMedia
	}
	g := guard.answer(t, caller, false, ":status", "200", "content-type", media)
	g.recv()
	var answer struct {
		Result map[string][]map[string]string
	}
	got := strings.TrimPrefix(g.through(text), "data: ")
	if err := json.Unmarshal([]byte(got), &answer); err != nil || answer.Result[kind] == nil {
		t.Fatalf("%s: %v", got, err)
	}
	g.finish()
	for _, item := range answer.Result[kind] {
		out = append(out, item[usedBy[kind][1]])
	}
	return out
}
