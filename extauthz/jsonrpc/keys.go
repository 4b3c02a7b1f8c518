package jsonrpc

import (
	"unicode"
	"unicode/utf8"
)

// A keySet holds the keys that the protocol gives a meaning in one object, each
// under its canonical form.
type keySet map[string]string

func newKeySet(keys ...string) keySet {
	set := make(keySet, len(keys))
	for _, key := range keys {
		set[string(canonical(nil, []byte(key)))] = key
	}
	return set
}

// The objects whose keys decide. The params keys are those of every message
// that a client sends in MCP 2024-11-05 to 2026-07-28 and its tasks extension,
// whatever the method: the method may stand behind the params.
var (
	messageKeys = newKeySet("jsonrpc", "id", "method", "params", "result", "error")
	paramsKeys  = newKeySet(
		"_meta", "name", "arguments", "uri", "taskId", "ref", "argument", "context", "level", "cursor",
		"protocolVersion", "capabilities", "clientInfo", "notifications", "task", "inputResponses",
		"requestState", "requestId", "reason", "progressToken", "progress", "total", "message")
	refKeys    = newKeySet("type", "name", "uri")
	filterKeys = newKeySet("toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds")
	metaKeys   = newKeySet(
		"progressToken", metaVersion, metaCapabilities, "io.modelcontextprotocol/clientInfo",
		"io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/logLevel",
		"io.modelcontextprotocol/subscriptionId", "io.modelcontextprotocol/related-task",
		"traceparent", "tracestate", "baggage")
)

const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
)

// find returns the protocol key that name is, or "" if it is none. It is not ok
// if name is no protocol key but some reader might take it for one.
func (s keySet) find(name, scratch []byte) (key string, ok bool) {
	key = s[string(canonical(scratch[:0], name))]
	return key, key == "" || key == string(name)
}

// canonical appends to dst what the most careless reader makes of name: case
// folded (Unicode, full), without spaces, controls and what is invisible, at
// the ends or between. It is for keys that the protocol knows, all of which are
// ASCII.
func canonical(dst, name []byte) []byte {
	for _, c := range name {
		switch {
		case c >= utf8.RuneSelf:
			return canonicalUnicode(dst[:0], name)
		case c <= ' ' || c == 0x7f:
		case 'A' <= c && c <= 'Z':
			dst = append(dst, c+'a'-'A')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func canonicalUnicode(dst, name []byte) []byte {
	for _, c := range string(name) {
		switch {
		case invisible(c):
		case c == 'İ' || c == 'ı': // Java's equalsIgnoreCase takes both for an i
			dst = append(dst, 'i')
		default:
			dst = utf8.AppendRune(dst, c)
		}
	}
	return appendFoldedUnicode(nil, dst)
}

// invisible tells whether c is a space, a control or a default-ignorable code
// point (Unicode, DerivedCoreProperties; a little more than those).
func invisible(c rune) bool {
	return unicode.In(c, unicode.White_Space, unicode.Z, unicode.Cc, unicode.Cf,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Canonical appends to dst[:0] what the most careless reader makes of a key: two
// keys with one canonical form are one to somebody.
func Canonical(dst, name []byte) []byte { return canonical(dst[:0], name) }
