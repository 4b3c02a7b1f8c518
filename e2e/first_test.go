//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

func TestDemoAnswersOnBothPaths(t *testing.T) {
	server := shared.demo(t)
	_, token := shared.addToken(t, server)
	got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("7", "tools/call", `{"name":"echo","arguments":{"text":"hello"}}`)})
	if got.status != 200 || !strings.Contains(got.body, `"id":7`) || !strings.Contains(got.body, "hello") {
		t.Errorf("/rpc: status %d, body %s", got.status, got.body)
	}
	session := shared.session(t, server, token)
	got = shared.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: rpc("8", "tools/list", ""), header: map[string]string{"Mcp-Session-Id": session}})
	if got.status != 200 || !strings.Contains(got.body, `"echo"`) {
		t.Errorf("/mcp: status %d, body %s", got.status, got.body)
	}
}
