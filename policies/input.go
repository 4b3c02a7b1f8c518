package policies

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// Action is what is asked for.
type Action string

// The actions.
const (
	ActionCall       Action = "call"        // one JSON-RPC request or notification
	ActionOpenStream Action = "open_stream" // GET on /mcp
	ActionListItem   Action = "list_item"   // may this item of a list be shown: its Call is the one that would use it
	ActionBootstrap  Action = "identity.bootstrap"
	ActionRotate     Action = "identity.rotate"
)

// Input is everything a decision can depend on: what schema/input.json
// describes. What is empty here is absent there.
type Input struct {
	Principal Principal
	Server    *Server
	Transport string // mcp or rpc
	Action    Action
	Call      *Call // of ActionCall and ActionListItem
	Request   Request
	Time      time.Time
}

// Principal is who asks, and what the credential is narrowed to.
type Principal struct {
	identity.Principal

	Scopes   []string
	Narrowed bool // false: made without scopes, and they are absent

	User        string         // who the client acts for
	Claims      jsontext.Value // an object: of a verified token
	Certificate *Certificate
}

// Certificate is the client certificate of the connection.
type Certificate struct {
	Fingerprint string // SHA-256 of the DER, lower-case hexadecimal
	Serial      string // lower-case hexadecimal
	Issuer      string
	URI         string // its SPIFFE ID
	NotAfter    time.Time
}

// Call is one message. Only what the method has is there.
type Call struct {
	Method          string
	Tool            string // of tools/call
	Prompt          string // of prompts/get
	Resource        string // the URI of resources/read, subscribe and unsubscribe
	Template        string // the URI template of a listed resource template
	Task            string // of tasks/*
	Level           string // of logging/setLevel
	Ref             *Ref   // of completion/complete
	Subscriptions   []string
	Arguments       jsontext.Value // of tools/call, prompts/get and others: any JSON
	Params          jsontext.Value // of a method that this release does not know
	ProtocolVersion string
	Notification    bool
	Batch           bool // the message stood in a batch
	BatchIndex      int  // from 0
}

// Ref is what completion/complete completes.
type Ref struct {
	Type string // ref/prompt or ref/resource
	Name string // of the prompt, or the resource's URI
}

// Request is the HTTP request.
type Request struct {
	Method  string
	Path    string
	Host    string
	Source  string   // the caller's IP address
	Headers []Header // those that the gateway's settings name
}

// Header is one header line, its name in lower case.
type Header struct{ Name, Value string }
