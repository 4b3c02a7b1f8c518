package extauthz

import (
	"slices"
	"strings"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// upkeep messages keep a session going: credential and session, no policy
// (contract section 4). server/discover is never denied to a caller who may
// use the server.
func upkeep(m jsonrpc.Message) bool {
	if m.Kind == jsonrpc.Response {
		return true
	}
	switch m.Method {
	case "ping", "server/discover", "notifications/initialized", "notifications/cancelled",
		"notifications/progress", "notifications/roots/list_changed":
		return true
	}
	return false
}

// listing reports messages whose result may hold a list of what a caller could
// use: that of a method which this release does not know, too. On /rpc, where
// any JSON-RPC server may stand, such a method has to look like one of MCP's: an
// answer that may be a list is held until it is whole.
func listing(transport jsonrpc.Transport, messages []jsonrpc.Message) bool {
	return slices.ContainsFunc(messages, func(m jsonrpc.Message) bool {
		if m.Kind == jsonrpc.Response || known(m.Method) && !listed(m.Method) {
			return false
		}
		return transport == jsonrpc.MCP || strings.Contains(m.Method, "/")
	})
}

// listed are the methods that are answered with a list. tasks/result is answered
// with what the request behind the task would have been.
func listed(method string) bool {
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "tasks/result":
		return true
	}
	return false
}

// known reports a method that this release knows what it is answered with.
func known(method string) bool { return jsonrpc.Known(method) }
