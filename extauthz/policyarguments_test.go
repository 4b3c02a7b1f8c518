package extauthz_test

import (
	"strings"
	"testing"
)

// TestArgumentsThatNoPolicyIsAskedAboutAreTheCallersFault: 503 and a line in the
// log of errors are for the gateway's own faults; a caller cannot ask for them.
func TestArgumentsThatNoPolicyIsAskedAboutAreTheCallersFault(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	session := f.dial().initialize(t, mcpCall(srv.GetId(), value, initialize), "")
	f.decideBy("package policy\n\nallow if input.call.arguments.x != 1\n\nallow if input.call.params.x != 1\n")
	const want = `"code":-32602,"message":"the arguments hold too many values`
	var rows []row
	for name, x := range map[string]string{
		"many values": "[" + strings.Repeat("1,", 20_000) + "1]", "a long number": strings.Repeat("9", 300), "a large number": "1e99999999",
	} {
		call := message("tools/call", `{"name":"echo","arguments":{"x":`+x+`}}`)
		rows = append(rows,
			row{name, mcpCall(srv.GetId(), value, call).with("mcp-session-id", session), 400, want},
			row{name + " on /rpc", rpcCall(srv.GetId(), value, call), 400, `"id":"x","error":{` + want},
			row{name + " in a batch", rpcCall(srv.GetId(), value, "["+call+","+toolCall("echo")+"]"), 400, want},
			row{name + " as params", rpcCall(srv.GetId(), value, message("own", `{"x":`+x+`}`)), 400, want},
			row{name + " in a notification", rpcCall(srv.GetId(), value, notification(call)), 400, want},
		)
	}
	f.checkRows(t, rows)
}
