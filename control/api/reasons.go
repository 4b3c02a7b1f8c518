package api

// Steps of a request (docs/architecture.md, "Request"), in their order.
const (
	stepAddress    = "address"    // host, origin, path
	stepCredential = "credential" // who is calling
	stepMessage    = "message"    // the HTTP request and its body
	stepSession    = "session"
	stepPolicy     = "policy"
	stepLimit      = "limit"
	stepUpstream   = "upstream"
	stepGateway    = "gateway" // its own fault
)

// reasonText says in which step a reason arises, what it means, and what
// somebody can do who does not want it.
type reasonText struct{ step, means, help string }

// reasonTexts has every reason of extauthz/denial.go that is not the policy's;
// a test holds the two together.
var reasonTexts = map[string]reasonText{
	"host_refused":   {stepAddress, "the Host of the request is none that the gateway serves", "call it by its base URL, or list the name in the setting hosts"},
	"origin_refused": {stepAddress, "a web page of an Origin that is not allowed made the request", "add the Origin to the server's allowed origins: arbiter server update SERVER --origin"},
	"preflight":      {stepAddress, "a browser asked whether it may send a request; the answer said what it may send", ""},
	"query_refused":  {stepAddress, "the path had a query string", "remove it: credentials and parameters never stand in a URL"},

	"duplicate_header":             {stepCredential, "a header that decides something came more than once", "send it once"},
	"no_credential":                {stepCredential, "the request carried no credential", "send Authorization: Bearer with an access token of this server"},
	"credential_malformed":         {stepCredential, "what stood in Authorization is not an access token: its form or its checksum is wrong", "copy the whole token, and nothing else, behind Bearer"},
	"credential_unknown":           {stepCredential, "no live access token has this value", "make another one: arbiter token create SERVER"},
	"credential_of_another_server": {stepCredential, "the access token is of another server", "use a token of this server: each one reaches its own server only"},
	"credential_expired":           {stepCredential, "the access token has expired", "make another one: arbiter token create SERVER"},
	"credential_revoked":           {stepCredential, "the access token, or its server, was deleted", "make another one: arbiter token create SERVER"},

	"server_disabled":      {stepAddress, "the server is disabled", "arbiter server enable SERVER"},
	"transport_missing":    {stepAddress, "the server has no MCP upstream", "call it on /rpc, or give it one: arbiter server update SERVER --mcp"},
	"rpc_upstream_missing": {stepAddress, "the server has no JSON-RPC upstream", "call it on /mcp, or give it one: arbiter server update SERVER --rpc"},

	"method_not_allowed":       {stepMessage, "the HTTP method is not used on this path", "POST a message; on /mcp GET opens a stream and DELETE ends a session"},
	"not_acceptable":           {stepMessage, "the Accept header does not list what an answer may be", "list application/json and text/event-stream (GET: text/event-stream)"},
	"media_type_refused":       {stepMessage, "the body is not declared as JSON", "send Content-Type: application/json, without a charset or with utf-8"},
	"content_encoding_refused": {stepMessage, "the body is compressed", "send it as it is, without Content-Encoding"},
	"body_not_allowed":         {stepMessage, "a GET or DELETE had a body", "send none"},
	"body_refused":             {stepMessage, "the body is no message that can be understood in one way only", "send one JSON-RPC 2.0 message in UTF-8, no key twice, method names as the protocol spells them; detail says what was found"},
	"body_too_large":           {stepMessage, "the body is longer than the server's max_body", "send less at once, or arbiter server update SERVER --max-body"},
	"request_headers_too_long": {stepMessage, "the headers that the policy reads are longer than 4 KiB together", "send shorter ones, or name fewer in the setting policy_request_headers"},
	"opener_refused":           {stepMessage, "the initialize came with a session, or without a protocolVersion", "initialize without Mcp-Session-Id, with params.protocolVersion as a string"},
	"protocol_version_refused": {stepMessage, "the MCP protocol version is not one that the server is set up for", "use another version, or arbiter server update SERVER --eras"},
	"header_mismatch":          {stepMessage, "an MCP header says something else than the body", "mirror method, name and protocol version as the specification says"},
	"meta_incomplete":          {stepMessage, "params._meta lacks what protocol version 2026-07-28 needs", "send io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities there"},

	"session_missing":              {stepSession, "the request had no Mcp-Session-Id", "initialize first, then send the id of the answer with each request"},
	"session_unknown":              {stepSession, "the session's id cannot be opened: it is no id of this gateway, or its key is gone", "initialize a new session"},
	"session_expired":              {stepSession, "the session is older than session_lifetime", "initialize a new session"},
	"session_of_another_server":    {stepSession, "the session is of another server", "initialize a session at this server"},
	"session_of_another_principal": {stepSession, "the session was opened by another principal", "initialize a session with this credential: sessions are not shared"},
	"session_without_upstream":     {stepSession, "the upstream keeps no session, so there is none to end", ""},

	"too_many_streams":     {stepLimit, "the credential had as many live streams as it may", "close one, or raise the setting streams_per_credential"},
	"tool_changed":         {stepPolicy, "the server lists this tool with another definition than the approved one, and its tool_changes is deny", "look at the tool, then arbiter server approve-tools SERVER TOOL"},
	"rate_limited":         {stepLimit, "a limit that the policy sets was used up", "wait as long as Retry-After said; the record's result has the limits"},
	"upstream_unreachable": {stepUpstream, "the server behind the gateway could not be reached", "look whether it runs, and whether its address is allowed by upstream_networks"},
}
