package jsonrpc

import "github.com/go-json-experiment/json/jsontext"

// Transport is the path a body came in on.
type Transport uint8

// The transports. The zero value is the stricter one.
const (
	MCP Transport = iota // /servers/{id}/mcp, MCP streamable HTTP
	RPC                  // /servers/{id}/rpc, stateless JSON-RPC 2.0
)

// Limits that hold on both transports.
const (
	HardLimit   = 4 << 20      // bytes of a body; Envoy refuses more with 413
	MaxDepth    = 64           // objects and arrays inside each other, a batch's array included
	MaxBatch    = 32           // messages of a batch
	MaxID       = 1 << 10      // bytes of an id as it is spelled: it is carried along and echoed
	MaxSafeID   = 1<<53 - 1    // largest integer id on /mcp, either sign (RFC 7493 section 2.2)
	versionText = `2.0`        // the only jsonrpc there is
	initialize  = "initialize" // the opener of a legacy session
)

// Rules says what may stand in a body. The zero value is the strictest.
type Rules struct {
	Transport Transport
	Batch     bool // an array of messages may stand where a message may
	Responses bool // responses may stand too: a legacy session on /mcp
	MaxBytes  int  // the server's max_body; 0 means HardLimit
}

// Body is what a body says, read once.
type Body struct {
	Batch    bool      // it was an array, even if of one message
	Messages []Message // at least one
}

// Kind says what a message is.
type Kind uint8

// The kinds of messages (JSON-RPC 2.0 sections 4 and 5).
const (
	Request      Kind = iota + 1 // method and id
	Notification                 // method, no id
	Response                     // id and exactly one of result and error; no method
)

// String names the kind for logs.
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	}
	return "none"
}

// Message is one message. Its raw values are parts of the body that was given
// to Parse and hold only as long as nobody writes to that.
type Message struct {
	Kind   Kind
	ID     jsontext.Value // as the caller spelled it; nil in a notification
	Method string         // never empty but in a response

	// Selector is what the method is about: the tool or prompt, the resource's
	// URI, the task, the log level. Never empty where HasSelector.
	Selector    string
	HasSelector bool
	// Ref is completion/complete's params.ref.type, "ref/prompt" or
	// "ref/resource": it says what Selector names there.
	Ref string
	// Subscriptions are the URIs of subscriptions/listen:
	// params.notifications.resourceSubscriptions (MCP 2026-07-28).
	Subscriptions []string

	Params    jsontext.Value // nil when absent or null; an object, or on /rpc an array
	Arguments jsontext.Value // params.arguments of any kind; nil when absent
	Meta      Meta           // of params._meta

	// ProtocolVersion is params.protocolVersion of initialize: always there on
	// /mcp, perhaps empty on /rpc.
	ProtocolVersion string
}

// Meta is what a message says of itself in params._meta by the keys that
// MCP 2026-07-28 (basic, "Per-request protocol fields") requires of a request.
type Meta struct {
	ProtocolVersion       string // io.modelcontextprotocol/protocolVersion
	HasProtocolVersion    bool
	HasClientCapabilities bool // io.modelcontextprotocol/clientCapabilities, an object
}
