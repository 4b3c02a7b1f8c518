package jsonrpc_test

import (
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// A method has a subject exactly when its messages have a selector.
func TestSubjectsAreThoseOfSelectors(t *testing.T) {
	for method, want := range map[string]jsonrpc.Subject{
		"tools/call": jsonrpc.Tool, "prompts/get": jsonrpc.Prompt, "logging/setLevel": jsonrpc.Level, "completion/complete": jsonrpc.Completion,
		"resources/read": jsonrpc.Resource, "resources/subscribe": jsonrpc.Resource, "resources/unsubscribe": jsonrpc.Resource,
		"tasks/get": jsonrpc.Task, "tasks/update": jsonrpc.Task, "tasks/cancel": jsonrpc.Task, "tasks/result": jsonrpc.Task,
		"tools/list": jsonrpc.Nothing, "tasks/list": jsonrpc.Nothing, "initialize": jsonrpc.Nothing, "vendor/do": jsonrpc.Nothing, "": jsonrpc.Nothing,
	} {
		if got := jsonrpc.SubjectOf(method); got != want {
			t.Errorf("%q is about %d, want %d", method, got, want)
		}
		if want != jsonrpc.Nothing && !jsonrpc.Known(method) {
			t.Errorf("%q is no method of MCP", method)
		}
		if method == "" {
			continue
		}
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"name":"a","uri":"a","taskId":"a","level":"a","ref":{"type":"ref/prompt","name":"a"}}}`
		parsed, err := jsonrpc.Parse([]byte(body), jsonrpc.Rules{Transport: jsonrpc.RPC})
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Messages[0].HasSelector; got != (want != jsonrpc.Nothing) {
			t.Errorf("%q has a selector: %t", method, got)
		}
	}
}
