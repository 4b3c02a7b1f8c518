package extauthz

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// respond is step 8: what Envoy does with the request.
func respond(d *decision) (*authv3.CheckResponse, error) {
	if d.allowed && d.denied == nil {
		return allow(d)
	}
	return refuse(d), nil
}

// refuse answers the caller in the upstream's place.
func refuse(d *decision) *authv3.CheckResponse {
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
	}
	headers = append(headers, corsHeaders(d)...)
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(status)},
			Headers: headers.options(),
			Body:    string(body),
		}},
	}
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
func allow(d *decision) (*authv3.CheckResponse, error) {
	note, err := noteFor(d).text()
	if err != nil {
		return nil, err
	}
	mark := markFaults
	switch {
	case d.call.opener:
		mark = markSeal
	case d.nothingDue() && d.req.transport == jsonrpc.RPC:
		mark = markAll // whatever a notification is answered with becomes 202
	case d.nothingDue():
		mark = markNone
	}
	to := d.route.target
	metadata := map[string]string{
		metaGuard: mark, metaAddress: d.route.address.String(), metaHost: to.url.HostHeader(), metaPath: to.url.Path(), metaNote: note,
	}
	answer := headerLines{{"arbiter-decision", "allow"}}.options()
	if d.req.cors != "" { // Envoy sets both on every answer, whoever makes it
		metadata[metaOrigin], metadata[metaExpose] = d.req.cors, exposed
		answer = append(answer, appended("vary", "Origin"))
	}
	if id := d.call.id(); id != nil {
		metadata[metaID] = string(id)
	}
	set, remove := upstreamHeaders(d)
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			Headers:              set.options(),
			HeadersToRemove:      remove,
			ResponseHeadersToAdd: answer,
		}},
		DynamicMetadata: metadataOf(metadata),
	}, nil
}

func metadataOf(fields map[string]string) *structpb.Struct {
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(fields))}
	for name, value := range fields {
		out.Fields[name] = structpb.NewStringValue(value)
	}
	return out
}

// nothingDue reports a request that wants no answer but its status: a
// notification, a response to the server, a DELETE. A bare 202 passes unseen.
func (d *decision) nothingDue() bool {
	return d.req.method != http.MethodGet && !d.call.answered()
}

func noteFor(d *decision) *note {
	principal := d.who.Principal.Digest()
	n := &note{
		Request: d.req.id, Server: d.srv.id, Credential: d.who.ID, Principal: principal[:],
		Transport: d.req.transport, Due: !d.nothingDue(), Address: d.route.address,
		ID: d.call.id(), Checked: d.started.UnixMilli(),
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
		{"x-arbiter-server", d.srv.id.String()},
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
	if d.req.transport == jsonrpc.MCP && (!d.route.resumes || d.call.modern) {
		remove = append(remove, "last-event-id")
	}
	if d.call.opener {
		remove = append(remove, "accept-encoding") // Guard reads the answer
	}
	for _, own := range d.route.headers {
		set = append(set, [2]string{own.name, own.value.Reveal()})
		remove = slices.DeleteFunc(remove, func(name string) bool { return name == own.name })
	}
	return set, remove
}

// escaped makes a name fit for a header: everything but visible ASCII is
// percent-encoded, "%" too.
func escaped(name string) string {
	const digits = "0123456789ABCDEF"
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
type headerLines [][2]string

// options are Envoy's form: each replaces what was there. Envoy reads value;
// raw_value would arrive empty.
func (lines headerLines) options() []*corev3.HeaderValueOption {
	out := make([]*corev3.HeaderValueOption, 0, len(lines))
	for _, line := range lines {
		out = append(out, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: line[0], Value: line[1]},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return out
}

// appended adds a line to what an upstream said in the same header.
func appended(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD,
	}
}
