package jsonrpc

import "strings"

// The params keys that select what a method is about.
const (
	byName  = "name"
	byURI   = "uri"
	byTask  = "taskId"
	byRef   = "ref"
	byLevel = "level"
)

// selectorKey names the params key that selects what method is about, or is ""
// for a method without selector. A notification of such a method has it too.
func selectorKey(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return byName
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return byURI
	case "tasks/get", "tasks/update", "tasks/cancel", "tasks/result":
		return byTask
	case "completion/complete":
		return byRef
	case "logging/setLevel":
		return byLevel
	}
	return ""
}

// HasNameHeader tells whether the header Mcp-Name has to mirror the Selector of
// this method (MCP 2026-07-28 basic/transports, "Standard Request Headers"; the
// tasks extension, SEP-2663, "Streamable HTTP").
func HasNameHeader(method string) bool {
	switch method {
	case "tools/call", "prompts/get", "resources/read", "tasks/get", "tasks/update", "tasks/cancel":
		return true
	}
	return false
}

// methods are what a client sends in MCP 2024-11-05 to 2026-07-28 and its tasks
// extension.
var methods = newKeySet(
	"initialize", "ping", "server/discover", "subscriptions/listen",
	"tools/list", "tools/call", "prompts/list", "prompts/get",
	"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
	"completion/complete", "logging/setLevel",
	"tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "tasks/list",
	"notifications/initialized", "notifications/cancelled", "notifications/progress",
	"notifications/roots/list_changed", "notifications/tasks/status")

// Known tells whether MCP, as this release knows it, has this method.
func Known(method string) bool {
	key, exact := methods.find([]byte(method), make([]byte, 0, 64))
	return key != "" && exact
}

// ambiguousMethod tells whether some reader might take a method for one of MCP's with
// a "/" in it that it is not: a policy that judges tools/call would not see it.
func ambiguousMethod(method string, scratch []byte) bool {
	key, exact := methods.find([]byte(method), scratch)
	return !exact && strings.Contains(key, "/")
}
