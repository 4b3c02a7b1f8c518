package extauthz

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// Reason is the stable code of a denial, in logs, metrics and error data.
type Reason string

// The reasons. What a caller sees of each stands in the table below.
const (
	reasonAllowed        Reason = "allowed"
	reasonHost           Reason = "host_refused"
	reasonOrigin         Reason = "origin_refused"
	reasonPreflight      Reason = "preflight"
	reasonQuery          Reason = "query_refused"
	reasonDuplicate      Reason = "duplicate_header"
	reasonNoCredential   Reason = "no_credential"
	reasonCredential     Reason = "credential_malformed"
	reasonUnknown        Reason = "credential_unknown"
	reasonOtherServer    Reason = "credential_of_another_server"
	reasonExpired        Reason = "credential_expired"
	reasonRevoked        Reason = "credential_revoked"
	reasonServerDisabled Reason = "server_disabled"
	reasonNoTransport    Reason = "transport_missing"
	reasonNoBridge       Reason = "rpc_upstream_missing"
	reasonMethod         Reason = "method_not_allowed"
	reasonAccept         Reason = "not_acceptable"
	reasonMediaType      Reason = "media_type_refused"
	reasonEncoding       Reason = "content_encoding_refused"
	reasonGetBody        Reason = "body_not_allowed"
	reasonBody           Reason = "body_refused"
	reasonTooLarge       Reason = "body_too_large"
	reasonOpener         Reason = "opener_refused"
	reasonNoSession      Reason = "session_missing"
	reasonSession        Reason = "session_unknown"
	reasonSessionExpired Reason = "session_expired"
	reasonSessionServer  Reason = "session_of_another_server"
	reasonSessionOther   Reason = "session_of_another_principal"
	reasonNoUpSession    Reason = "session_without_upstream"
	reasonVersion        Reason = "protocol_version_refused"
	reasonMirror         Reason = "header_mismatch"
	reasonMeta           Reason = "meta_incomplete"
	reasonStreams        Reason = "too_many_streams"
	reasonPolicy         Reason = "policy_denied"
	reasonLimit          Reason = "rate_limited"
	reasonHeaders        Reason = "request_headers_too_long"
	reasonTool           Reason = "tool_changed"
	reasonUpstream       Reason = "upstream_unreachable"
)

// JSON-RPC error codes of the gateway's own (contract section 4).
const (
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeHeaderMismatch = -32020
	codeVersion        = -32022
	codeUnauthorized   = -31401
	codeForbidden      = -31403
	codeSession        = -31404
	codeTooLarge       = -31413
	codeLimit          = -31429
	codeNotImplemented = -31501
	codeUpstream       = -31502
	codeUnavailable    = -31503
)

// outward is what a caller sees of a reason.
type outward struct {
	status int
	code   int
	text   string
}

// unauthorized is the same for every fault of a credential, so that nobody
// learns what exists.
var unauthorized = outward{401, codeUnauthorized, "authentication is needed: send one Authorization header with a live access token of this server"}

// sessionUnknown is the same for every session that cannot be used.
var sessionUnknown = outward{404, codeSession, "this session is not known here: initialize a new one"}

// outwards is the one table from reasons to answers.
var outwards = map[Reason]outward{
	reasonHost:           {421, codeInvalidRequest, "this Host is not served here: use the gateway's base URL, or list the name in hosts"},
	reasonOrigin:         {403, codeForbidden, "this Origin is not allowed: add it to the server's allowed origins"},
	reasonPreflight:      {204, 0, ""},
	reasonQuery:          {400, codeInvalidRequest, "a query string is not allowed on this path: remove it"},
	reasonDuplicate:      {400, codeInvalidRequest, "a header came more than once"},
	reasonNoCredential:   unauthorized,
	reasonCredential:     unauthorized,
	reasonUnknown:        unauthorized,
	reasonOtherServer:    unauthorized,
	reasonExpired:        unauthorized,
	reasonRevoked:        unauthorized,
	reasonServerDisabled: {403, codeForbidden, "this server is disabled by its operator"},
	reasonNoTransport:    {501, codeNotImplemented, "this server has no MCP upstream: call it on /rpc"},
	reasonNoBridge:       {501, codeNotImplemented, "this server has no JSON-RPC upstream: call it on /mcp, or give it one with --rpc"},
	reasonMethod:         {405, codeInvalidRequest, "this method is not allowed here"},
	reasonAccept:         {406, codeInvalidRequest, "the Accept header must list application/json and text/event-stream (GET: text/event-stream)"},
	reasonMediaType:      {415, codeInvalidRequest, "the Content-Type must be application/json, its charset absent or utf-8"},
	reasonEncoding:       {415, codeInvalidRequest, "a Content-Encoding is not allowed: send the body as it is"},
	reasonGetBody:        {400, codeInvalidRequest, "a body is not allowed with this method"},
	reasonBody:           {400, codeInvalidRequest, "the body is not a JSON-RPC message"},
	reasonTooLarge:       {413, codeTooLarge, "the body is longer than this server allows"},
	reasonOpener:         {400, codeInvalidRequest, "initialize is sent without Mcp-Session-Id, and its protocolVersion is a string"},
	reasonNoSession:      {400, codeInvalidRequest, "Mcp-Session-Id is missing: initialize first, then send the id of the answer"},
	reasonSession:        sessionUnknown,
	reasonSessionExpired: sessionUnknown,
	reasonSessionServer:  sessionUnknown,
	reasonSessionOther:   sessionUnknown,
	reasonNoUpSession:    {405, codeInvalidRequest, "this server keeps no sessions: there is nothing to end"},
	reasonVersion:        {400, codeVersion, "this MCP protocol version is not supported here"},
	reasonMirror:         {400, codeHeaderMismatch, "a header contradicts the body"},
	reasonMeta:           {400, codeInvalidParams, "params._meta needs io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities"},
	reasonStreams:        {429, codeLimit, "this credential has as many live streams as it may: close one"},
	reasonPolicy:         {403, codeForbidden, "this is not allowed"},
	reasonLimit:          {429, codeLimit, "this is called too often"},
	reasonHeaders:        {431, codeInvalidRequest, "the headers that the policy reads are longer than 4 KiB together"},
	reasonTool:           {403, codeForbidden, "the definition of this tool has changed since it was approved: ask the server's owner to look at it and approve it"},
	reasonUpstream:       {502, codeUpstream, "the server behind the gateway cannot be reached"},
}

// denial says why a request goes no further. It is an error, so that each step
// can return it; errors that are not a denial are the gateway's own fault.
type denial struct {
	reason    Reason
	detail    string // stable code of what was found, when finer than reason
	text      string // replaces the table's
	code      int    // replaces the table's
	allow     string // the Allow header of a 405
	supported []string
	requested string
	id        jsontext.Value // of the message that is answered

	retryAfter int      // seconds; 0: nobody knows
	scopes     []string // that would have helped
	hidden     bool     // answered as if there were no such thing
	index      int      // of the message that was denied, in its batch
	kept       bool     // told with 200 by Guard
}

// streamsAgain is when a caller with too many live streams may try again, in
// seconds: it may have closed one by then.
const streamsAgain = 10

func deny(reason Reason) *denial { return &denial{reason: reason} }

func (d *denial) with(text string) *denial {
	d.text = text
	return d
}

// Error implements error. It carries no caller's value.
func (d *denial) Error() string {
	if d.detail != "" {
		return string(d.reason) + ": " + d.detail
	}
	return string(d.reason)
}

// outward merges the table with what the denial replaces.
func (d *denial) outward() outward {
	out := outwards[d.reason]
	if d.text != "" {
		out.text = d.text
	}
	if d.code != 0 {
		out.code = d.code
	}
	if d.kept {
		out.status = http.StatusOK
	}
	return out
}
