package extauthz

import (
	"bytes"
	"context"
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

// What Envoy says of the connection, as gRPC metadata out of every client's
// reach. xds writes them, under the same names.
const (
	metaPeerAddress = "x-arbiter-peer-address" // ip:port of the caller
	metaStream      = "x-arbiter-stream"       // Envoy's id of the request
)

// bodyCap is the most a body may have, in bytes. Envoy's own cap lies one byte
// above it, because over HTTP/2 Envoy lets longer bodies through with Check
// seeing them cut (envoy notes, "bodies").
const bodyCap = 4 << 20

// request is what Check reads of a CheckRequest.
type request struct {
	id        string // Envoy's id of the request
	peer      string // ip:port
	method    string
	host      string // authority, lower case
	path      string // normalised by Envoy, without query
	query     bool   // there was one, if only its "?"
	server    identity.ServerID
	serverID  string // server as text
	transport jsonrpc.Transport
	header    header
	body      []byte
	cut       bool   // the body is longer than what Check was shown, or than allowed
	cors      string // the allowed origin that asks, "" without one; set by admit
}

// header holds the fields that decide something, each with every line that
// came. Envoy joins lines of Authorization with a comma; the others stay apart.
type header struct {
	authorization   []string
	origin          []string
	accept          []string
	contentType     []string
	contentLength   []string
	contentEncoding []string
	sessionID       []string
	version         []string
	mcpMethod       []string
	mcpName         []string
	requestMethod   []string // Access-Control-Request-Method
	requestHeaders  []string // Access-Control-Request-Headers
	mcp             []string // names of all mcp-* fields

	seen     []policies.Header // those that policies see
	seenSize int               // bytes of their names and values
}

// parseRequest is step 1. A request that Envoy could not have routed here is
// an error, not a denial: nothing is known about who built it. Of the headers
// that decide nothing here it keeps those that policies see.
func parseRequest(ctx context.Context, in wire.Message, seen []string) (*request, error) {
	req := &request{id: said(ctx, metaStream), peer: said(ctx, metaPeerAddress)}
	var partial string
	http, err := wire.Read(in, func(name, value []byte) {
		if string(name) == "x-envoy-auth-partial-body" {
			partial = string(value)
			return
		}
		req.header.add(name, value)
		for _, want := range seen {
			if want == string(name) {
				req.header.see(want, value)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	req.method, req.host, req.body = http.Method, strings.ToLower(http.Host), http.Body
	req.path, _, req.query = strings.Cut(http.Path, "?")
	req.cut = bodyCut(http, partial)
	if req.id == "" || !req.route() {
		return nil, errMalformedCheck
	}
	return req, nil
}

// said is what Envoy says of the connection, if it says it once.
func said(ctx context.Context, name string) string {
	values := metadata.ValueFromIncomingContext(ctx, name)
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// bodyCut reports a body that Check did not see whole, or that is too long.
func bodyCut(http wire.Request, partial string) bool {
	body := len(http.Body)
	if body > bodyCap || partial == "true" {
		return true
	}
	if body > 0 && partial != "false" {
		return true
	}
	return http.Size >= 0 && body > 0 && http.Size != int64(body)
}

// route reads "/servers/{id}/rpc" or "/servers/{id}/mcp", nothing else.
func (r *request) route() bool {
	rest, found := strings.CutPrefix(r.path, "/servers/")
	id, suffix, slash := strings.Cut(rest, "/")
	server, err := identity.ParseServerID(id)
	if !found || !slash || err != nil {
		return false
	}
	r.server, r.serverID = server, id
	switch suffix {
	case "rpc":
		r.transport = jsonrpc.RPC
	case "mcp":
		r.transport = jsonrpc.MCP
	default:
		return false
	}
	return true
}

// add files one header line. Names arrive in lower case. What is not listed is
// not kept: most lines decide nothing.
func (h *header) add(name, value []byte) {
	switch string(name) {
	case "authorization":
		h.authorization = append(h.authorization, string(value))
	case "origin":
		h.origin = append(h.origin, string(value))
	case "accept":
		h.accept = append(h.accept, string(value))
	case "content-type":
		h.contentType = append(h.contentType, string(value))
	case "content-length":
		h.contentLength = append(h.contentLength, string(value))
	case "content-encoding":
		h.contentEncoding = append(h.contentEncoding, string(value))
	case "access-control-request-method":
		h.requestMethod = append(h.requestMethod, string(value))
	case "access-control-request-headers":
		h.requestHeaders = append(h.requestHeaders, string(value))
	default:
		if bytes.HasPrefix(name, []byte("mcp-")) {
			h.addMCP(string(name), string(value))
		}
	}
}

// see keeps a line for policies, unless there are too many: the request is
// refused then.
func (h *header) see(name string, value []byte) {
	if h.seenSize += len(name) + len(value); h.seenSize <= seenMost {
		h.seen = append(h.seen, policies.Header{Name: name, Value: strings.ToValidUTF8(string(value), "\ufffd")})
	}
}

// seen is the request as policies see it.
func (r *request) seen() policies.Request {
	out := policies.Request{Method: r.method, Path: r.path, Host: r.host, Headers: r.header.seen}
	if peer, err := netip.ParseAddrPort(r.peer); err == nil {
		out.Source = peer.Addr().Unmap().WithZone("").String()
	}
	return out
}

func (h *header) addMCP(name, value string) {
	h.mcp = append(h.mcp, name)
	switch name {
	case "mcp-session-id":
		h.sessionID = append(h.sessionID, value)
	case "mcp-protocol-version":
		h.version = append(h.version, value)
	case "mcp-method":
		h.mcpMethod = append(h.mcpMethod, value)
	case "mcp-name":
		h.mcpName = append(h.mcpName, value)
	}
}

// duplicated names a field of which more than one line came although one
// reader could take the first and another the last (contract section 4).
func (h *header) duplicated() (name string, found bool) {
	for _, field := range []struct {
		name  string
		lines []string
	}{
		{"Content-Type", h.contentType},
		{"Content-Length", h.contentLength},
		{"Mcp-Session-Id", h.sessionID},
		{"MCP-Protocol-Version", h.version},
		{"Mcp-Method", h.mcpMethod},
		{"Mcp-Name", h.mcpName},
	} {
		if len(field.lines) > 1 {
			return field.name, true
		}
	}
	return "", false
}

// declaresBody reports a Content-Length other than zero.
func (h *header) declaresBody() bool {
	if len(h.contentLength) == 0 {
		return false
	}
	n, err := strconv.ParseUint(h.contentLength[0], 10, 63)
	return err != nil || n > 0
}
