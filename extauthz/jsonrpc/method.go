package jsonrpc

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
