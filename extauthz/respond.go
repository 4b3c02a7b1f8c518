package extauthz

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// respond is step 8: what Envoy does with the request.
func respond(d *decision) (wire.Message, error) {
	if d.allowed && d.denied == nil {
		return allow(d)
	}
	return refuse(d)
}

// refuse answers the caller in the upstream's place.
func refuse(d *decision) (wire.Message, error) {
	status, body := d.status, d.body
	headers := headerLines{
		{"arbiter-decision", "deny"},
		{"arbiter-request-id", d.req.id},
	}
	if d.denied.reason == reasonPreflight {
		headers[0][1] = "preflight"
		headers = append(headers, preflightHeaders(d)...)
	}
	if body != nil {
		headers = append(headers, [2]string{"content-type", "application/json"}, [2]string{"cache-control", "no-store"})
	}
	switch {
	case status == http.StatusUnauthorized:
		headers = append(headers, [2]string{"www-authenticate", challenge(
			d.snap, d.req.server, d.req.transport, d.denied.reason != reasonNoCredential)})
	case d.denied.allow != "":
		headers = append(headers, [2]string{"allow", d.denied.allow})
	case status == http.StatusTooManyRequests && d.denied.retryAfter > 0:
		headers = append(headers, [2]string{"retry-after", strconv.Itoa(d.denied.retryAfter)})
	}
	headers = append(headers, corsHeaders(d)...)
	out := wire.Denied{Status: status, Headers: headers, Body: body}
	return out.Append(make([]byte, 0, answerSize+len(body)))
}

// challenge is the WWW-Authenticate of a 401 (RFC 6750, section 3; RFC 9728,
// section 5.1). It names what was dialled, whether or not it exists.
func challenge(snap *Snapshot, server identity.ServerID, dialled jsonrpc.Transport, presented bool) string {
	transport := "mcp"
	if dialled == jsonrpc.RPC {
		transport = "rpc"
	}
	text := `Bearer resource_metadata="` + snap.gateway.base.text +
		"/.well-known/oauth-protected-resource/servers/" + server.String() + "/" + transport + `", scope="mcp:connect tools:call"`
	if presented {
		text += `, error="invalid_token"`
	}
	return text
}

// exposed are the headers that a page may read.
const exposed = "Mcp-Session-Id, WWW-Authenticate, Retry-After, arbiter-decision, arbiter-request-id"

// corsHeaders let a page of an allowed origin read the answer (Fetch standard,
// "CORS protocol"); never with credentials mode.
func corsHeaders(d *decision) headerLines {
	if d.req == nil || d.req.cors == "" {
		return nil
	}
	return headerLines{
		{"access-control-allow-origin", d.req.cors},
		{"access-control-expose-headers", exposed},
		{"vary", "Origin"},
	}
}

func preflightHeaders(d *decision) headerLines {
	methods := "POST"
	if d.req.transport == jsonrpc.MCP {
		methods = "POST, GET, DELETE"
	}
	names := []string{"Authorization", "Content-Type", "Accept", "Last-Event-ID", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"}
	for _, line := range d.req.header.requestHeaders {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if strings.HasPrefix(name, "mcp-param-") && fieldName(name) {
				names = append(names, name)
			}
		}
	}
	return headerLines{
		{"access-control-allow-methods", methods},
		{"access-control-allow-headers", strings.Join(names, ", ")},
		{"access-control-max-age", "600"},
	}
}

func fieldName(name string) bool {
	return len(name) <= 128 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// allow sends the request on, as the principal and without its credential.
func allow(d *decision) (wire.Message, error) {
	n := noteFor(d)
	note, err := n.text()
	if err != nil {
		return nil, err
	}
	to := d.route.target
	out := wire.Allowed{Answer: headerLines{{"arbiter-decision", "allow"}}}
	out.Metadata = append(make([]wire.Pair, 0, 8), // room for all of them
		wire.Pair{metaGuard, markOf(d)}, wire.Pair{metaAddress, d.route.address.String()},
		wire.Pair{metaHost, to.url.HostHeader()}, wire.Pair{metaPath, to.url.Path()}, wire.Pair{metaNote, note})
	if d.req.cors != "" { // Envoy sets both on every answer, whoever makes it
		out.Metadata = append(out.Metadata, wire.Pair{metaOrigin, d.req.cors}, wire.Pair{metaExpose, exposed})
		out.Vary = "Origin"
	}
	question, err := d.question()
	if err != nil {
		return nil, err
	}
	if question != "" {
		out.Metadata = append(out.Metadata, wire.Pair{metaQuestion, question})
	}
	if id := d.call.id(); id != nil {
		out.Metadata = append(out.Metadata, wire.Pair{metaID, string(id)})
	}
	out.Set, out.Remove = upstreamHeaders(d)
	return out.Append(make([]byte, 0, answerSize))
}

// answerSize holds most answers, in bytes.
const answerSize = 1024

// markOf says when Guard sees the answer.
func markOf(d *decision) string {
	switch {
	case d.call.opener:
		return markSeal
	case d.nothingDue() && d.req.transport == jsonrpc.RPC:
		return markAll // whatever a notification is answered with becomes 202
	case d.listed():
		return markList
	case d.nothingDue():
		return markNone
	}
	return markFaults
}

// listed reports that the answer may hold a list, whether or not one is due: an
// upstream might answer a notification as if it were a request, and on a GET
// stream what was asked for elsewhere.
func (d *decision) listed() bool {
	return listing(d.req.transport, d.call.messages) || d.reused || d.req.method == http.MethodGet
}

// nothingDue reports a request that wants no answer but its status: a
// notification, a response to the server, a DELETE. A bare 202 passes unseen.
func (d *decision) nothingDue() bool {
	return d.req.method != http.MethodGet && !d.call.answered()
}

func noteFor(d *decision) note {
	n := note{
		Request: d.req.id, Server: d.srv.id, Credential: d.who.ID, Principal: d.who.Principal.Digest(),
		Transport: d.req.transport, Due: !d.nothingDue(), Address: d.route.address,
		Checked: d.began,
	}
	if d.call.opener {
		n.Version = d.call.version
	}
	if !d.who.Expires.IsZero() {
		n.Expires = d.who.Expires.Unix()
	}
	return n
}

// upstreamHeaders says what changes on the way to the upstream (contract
// section 1, "Towards the upstream"). Envoy has already removed every
// x-arbiter-*, x-envoy-* and x-forwarded-client-cert that the client sent.
func upstreamHeaders(d *decision) (set headerLines, remove []string) {
	limit := "x-envoy-upstream-rq-per-try-timeout-ms" // ends with the answer's headers
	if d.req.transport == jsonrpc.RPC || d.call.opener || d.nothingDue() {
		limit = "x-envoy-upstream-rq-timeout-ms" // ends with the answer
	}
	set = headerLines{
		{"x-arbiter-cluster", d.route.target.cluster},
		{"x-arbiter-principal-kind", string(d.who.Principal.Kind)},
		{"x-arbiter-principal-id", d.who.Principal.Subject},
		{"x-arbiter-principal-name", escaped(d.who.Principal.Name)},
		{"x-arbiter-server", d.req.serverID},
		{"x-arbiter-request-id", d.req.id},
		{limit, strconv.FormatInt(d.srv.callLimit.Milliseconds(), 10)},
	}
	remove = []string{"authorization", "cookie"}
	switch {
	case d.req.transport == jsonrpc.RPC:
		remove = append(append(remove, "last-event-id"), d.req.header.mcp...)
	case d.session != nil && d.session.HasUpstream:
		set = append(set, [2]string{headerSessionID, d.session.Upstream})
	default:
		remove = append(remove, headerSessionID)
	}
	if d.req.transport == jsonrpc.MCP && (!d.route.resumes || d.call.modern || d.req.method != http.MethodGet) {
		remove = append(remove, "last-event-id")
	}
	if d.call.opener || d.listed() {
		remove = append(remove, "accept-encoding") // Guard reads the answer
	}
	ofPolicy, callers := policyLines(d)
	set, remove = append(set, ofPolicy...), append(remove, callers...)
	for _, own := range d.route.headers { // these win: the last one replaces
		set = append(set, [2]string{own.name, own.value.Reveal()})
		remove = slices.DeleteFunc(remove, func(name string) bool { return name == own.name })
	}
	return set, remove
}

// escaped makes a name fit for a header: everything but visible ASCII is
// percent-encoded, "%" too.
func escaped(name string) string {
	const digits = "0123456789ABCDEF"
	if strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '%' }) < 0 {
		return name
	}
	var out strings.Builder
	for i := range len(name) {
		if c := name[i]; c > ' ' && c < 0x7f && c != '%' {
			out.WriteByte(c)
		} else {
			out.Write([]byte{'%', digits[c>>4], digits[c&0xf]})
		}
	}
	return out.String()
}

// headerLines are names in lower case and values.
type headerLines = []wire.Pair
