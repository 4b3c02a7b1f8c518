package jsonrpc

import "strings"

// Subject is the kind of thing that a method is about, which its Selector names.
type Subject byte

// The subjects. Nothing is that of a method without a Selector, known or not.
const (
	Nothing Subject = iota
	Tool
	Prompt
	Resource
	Task
	Level      // of a log
	Completion // a prompt's or a resource's: Message.Ref says which
)

// subjects is the one table of the methods that have a Selector, and whether the
// header Mcp-Name mirrors it (MCP 2026-07-28 basic/transports, "Standard Request
// Headers"; the tasks extension, SEP-2663, "Streamable HTTP"). A notification of
// such a method has it too.
var subjects = map[string]struct {
	subject  Subject
	mirrored bool
}{
	"tools/call":            {Tool, true},
	"prompts/get":           {Prompt, true},
	"resources/read":        {Resource, true},
	"resources/subscribe":   {Resource, false},
	"resources/unsubscribe": {Resource, false},
	"tasks/get":             {Task, true},
	"tasks/update":          {Task, true},
	"tasks/cancel":          {Task, true},
	"tasks/result":          {Task, false},
	"logging/setLevel":      {Level, false},
	"completion/complete":   {Completion, false},
}

// SubjectOf says what a method is about.
func SubjectOf(method string) Subject { return subjects[method].subject }

// HasNameHeader tells whether the header Mcp-Name has to mirror the Selector of
// this method.
func HasNameHeader(method string) bool { return subjects[method].mirrored }

// The params keys that select what a method is about.
const (
	byName  = "name"
	byURI   = "uri"
	byTask  = "taskId"
	byRef   = "ref"
	byLevel = "level"
)

// selectorKey names the params key that selects what a method is about, or is ""
// for a method without Selector.
func selectorKey(method string) string {
	switch SubjectOf(method) {
	case Tool, Prompt:
		return byName
	case Resource:
		return byURI
	case Task:
		return byTask
	case Completion:
		return byRef
	case Level:
		return byLevel
	}
	return ""
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
