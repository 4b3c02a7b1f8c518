package extauthz

import (
	"errors"
	"mime"
	"slices"
	"strings"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// Revisions of MCP that this release knows. Those with a handshake are
// "legacy", those without "modern" (contract section 3).
const (
	versionModern  = "2026-07-28"
	versionBatches = "2025-03-26" // the only one with JSON-RPC batches
	versionMost    = 32           // bytes that initialize may ask with: a session holds no more
)

var (
	versionsLegacy = []string{"2025-11-25", "2025-06-18", versionBatches, "2024-11-05"}
	versionsModern = []string{versionModern}
)

// call is step 4: what the request wants, read once.
type call struct {
	messages []jsonrpc.Message
	batch    bool
	modern   bool // of a revision without sessions
	opener   bool // initialize: opens a session
	version  string
}

// answered reports whether some message wants an answer.
func (c call) answered() bool {
	return slices.ContainsFunc(c.messages, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Request })
}

// id is that of a single request, nil otherwise.
func (c call) id() []byte {
	if c.batch || len(c.messages) != 1 || c.messages[0].Kind != jsonrpc.Request {
		return nil
	}
	return c.messages[0].ID
}

// readCall reads the request behind a live credential: method, Accept, media
// type, body, era. The session is opened afterwards, by what is read here.
func readCall(srv *server, req *request) (call, error) {
	if name, found := req.header.duplicated(); found {
		return call{}, deny(reasonDuplicate).with("the header " + name + " came more than once: send it once")
	}
	if req.transport == jsonrpc.RPC {
		return readRPC(srv, req)
	}
	return readMCP(srv, req)
}

func readRPC(srv *server, req *request) (call, error) {
	if req.method != "POST" {
		return call{}, &denial{reason: reasonMethod, allow: "POST"}
	}
	c, err := readBody(req, jsonrpc.Rules{Transport: jsonrpc.RPC, Batch: true, MaxBytes: srv.maxBody})
	if err == nil && srv.rpc == nil {
		return call{}, deny(reasonNoBridge).addressed(c)
	}
	return c, err
}

func readMCP(srv *server, req *request) (call, error) {
	if srv.mcp == nil {
		return call{}, deny(reasonNoTransport)
	}
	version := ""
	if len(req.header.version) > 0 {
		version = req.header.version[0]
	}
	modern := srv.modern && slices.Contains(versionsModern, version)
	if allow := allowedMethods(srv, modern); !slices.Contains(allow, req.method) {
		return call{}, &denial{reason: reasonMethod, allow: strings.Join(allow, ", ")}
	}
	if req.method != "POST" {
		return readBodiless(srv, req, version)
	}
	if !accepts(req.header.accept, "application/json") || !accepts(req.header.accept, "text/event-stream") {
		return call{}, deny(reasonAccept)
	}
	if modern {
		return readModern(srv, req, version)
	}
	return readLegacy(srv, req, version)
}

func allowedMethods(srv *server, modern bool) []string {
	if modern || !srv.legacy {
		return []string{"POST"}
	}
	return []string{"POST", "GET", "DELETE"}
}

// readBodiless is GET and DELETE of the legacy era.
func readBodiless(srv *server, req *request, version string) (call, error) {
	if req.header.declaresBody() || len(req.body) > 0 || req.cut {
		return call{}, deny(reasonGetBody)
	}
	if req.method == "GET" && !accepts(req.header.accept, "text/event-stream") {
		return call{}, deny(reasonAccept)
	}
	if !legacyVersion(req) {
		return call{}, versionRefused(srv, version)
	}
	return call{version: version}, nil
}

func readModern(srv *server, req *request, version string) (call, error) {
	c, err := readBody(req, jsonrpc.Rules{Transport: jsonrpc.MCP, MaxBytes: srv.maxBody})
	if err != nil {
		return call{}, err
	}
	c.modern, c.version = true, version
	m := c.messages[0]
	if m.Method == "initialize" {
		return call{}, versionRefused(srv, version).to(m)
	}
	if err := mirrored(req, m, true); err != nil {
		return call{}, err
	}
	if m.Kind == jsonrpc.Request && !(m.Meta.HasProtocolVersion && m.Meta.HasClientCapabilities) {
		return call{}, deny(reasonMeta).to(m)
	}
	if m.Meta.HasProtocolVersion && m.Meta.ProtocolVersion != version {
		return call{}, mismatch("MCP-Protocol-Version", m)
	}
	return c, nil
}

func readLegacy(srv *server, req *request, version string) (call, error) {
	c, err := readBody(req, jsonrpc.Rules{
		Transport: jsonrpc.MCP, Batch: srv.batches, Responses: srv.legacy, MaxBytes: srv.maxBody,
	})
	if err != nil {
		return call{}, err
	}
	first := c.messages[0]
	if !legacyVersion(req) {
		return call{}, versionRefused(srv, version).addressed(c)
	}
	if !srv.legacy || slices.ContainsFunc(c.messages, discovers) {
		requested := first.Meta.ProtocolVersion
		if first.Method == "initialize" {
			requested = first.ProtocolVersion
		}
		return call{}, versionRefused(srv, requested).addressed(c)
	}
	for _, m := range c.messages {
		if slices.Contains(versionsModern, m.Meta.ProtocolVersion) {
			return call{}, mismatch("MCP-Protocol-Version", m)
		}
		if err := mirrored(req, m, false); err != nil {
			return call{}, err
		}
	}
	c.version = version
	if first.Method == "initialize" {
		return readOpener(srv, req, c)
	}
	return c, nil
}

// readOpener is initialize: it opens a session, so it is sent in none.
func readOpener(srv *server, req *request, c call) (call, error) {
	first := c.messages[0]
	if first.Kind != jsonrpc.Request || len(req.header.sessionID) > 0 {
		return call{}, deny(reasonOpener).to(first)
	}
	if len(first.ProtocolVersion) > versionMost {
		return call{}, versionRefused(srv, first.ProtocolVersion).to(first)
	}
	c.opener, c.version = true, first.ProtocolVersion
	return c, nil
}

// discovers tells the modern era's probe, which no legacy session asks.
func discovers(m jsonrpc.Message) bool { return m.Method == "server/discover" }

// legacyVersion reports that MCP-Protocol-Version is absent or names a known
// revision. One that is there and empty names none.
func legacyVersion(req *request) bool {
	return len(req.header.version) == 0 || slices.Contains(versionsLegacy, req.header.version[0])
}

// readBody checks what says how to read the body, then reads it.
func readBody(req *request, rules jsonrpc.Rules) (call, error) {
	if len(req.header.contentEncoding) > 0 {
		return call{}, deny(reasonEncoding)
	}
	if !plainJSON(req.header.contentType) {
		return call{}, deny(reasonMediaType)
	}
	if req.cut {
		return call{}, deny(reasonTooLarge)
	}
	body, err := jsonrpc.Parse(req.body, rules)
	if err != nil {
		return call{}, bodyRefused(err)
	}
	return call{messages: body.Messages, batch: body.Batch}, nil
}

func bodyRefused(err error) error {
	var fault *jsonrpc.Error
	if !errors.As(err, &fault) {
		return err
	}
	out := &denial{reason: reasonBody, detail: fault.Reason, code: fault.Code, text: fault.Message, id: fault.ID}
	if fault.Code == jsonrpc.CodeTooLarge {
		out.reason = reasonTooLarge
	}
	return out
}

// plainJSON accepts application/json, its charset absent or utf-8 and nothing
// else said. A "*" is refused: package mime lets charset*0=utf-8 (RFC 2231)
// replace a charset=utf-7, in which an upstream would read another message.
func plainJSON(lines []string) bool {
	if len(lines) != 1 || strings.Contains(lines[0], "*") {
		return false
	}
	if lines[0] == "application/json" { // as nearly everybody sends it
		return true
	}
	media, params, err := mime.ParseMediaType(lines[0])
	if err != nil || media != "application/json" {
		return false
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// accepts reports whether an Accept header lists a media type, itself or by a
// wildcard, with a quality above zero (RFC 9110, section 12.5.1).
func accepts(lines []string, want string) bool {
	kind, _, _ := strings.Cut(want, "/")
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
			if err != nil || strings.Trim(params["q"], "0.") == "" && params["q"] != "" {
				continue
			}
			if media == want || media == "*/*" || media == kind+"/*" {
				return true
			}
		}
	}
	return false
}

// mirrored compares Mcp-Method and Mcp-Name with the body. In the modern era a
// request needs them; everywhere a header that contradicts the body is refused,
// because what stands between might have looked at the header only.
func mirrored(req *request, m jsonrpc.Message, modern bool) error {
	needed := modern && m.Kind == jsonrpc.Request
	if err := mirror(req.header.mcpMethod, "Mcp-Method", m.Method, needed, m); err != nil {
		return err
	}
	if !jsonrpc.HasNameHeader(m.Method) {
		if len(req.header.mcpName) == 0 || !m.HasSelector {
			return nil
		}
		needed = false
	}
	return mirror(req.header.mcpName, "Mcp-Name", m.Selector, needed, m)
}

func mirror(lines []string, name, want string, needed bool, m jsonrpc.Message) error {
	if len(lines) == 0 {
		if needed {
			return mismatch(name, m)
		}
		return nil
	}
	got, err := jsonrpc.DecodeHeader(lines[0])
	if err != nil || got != want {
		return mismatch(name, m)
	}
	return nil
}

func mismatch(name string, m jsonrpc.Message) error {
	return deny(reasonMirror).with("the header " + name + " is missing or contradicts the body").to(m)
}

// to addresses the denial to one message.
func (d *denial) to(m jsonrpc.Message) *denial {
	d.id = m.ID
	return d
}

// versionRefused tells what would do: SDK clients then fall back.
func versionRefused(srv *server, requested string) *denial {
	d := &denial{reason: reasonVersion, supported: []string{}}
	if srv.modern {
		d.supported = append(d.supported, versionsModern...)
	}
	if srv.legacy {
		d.supported = append(d.supported, versionsLegacy...)
	}
	const most = 64
	d.requested = strings.ToValidUTF8(requested[:min(len(requested), most)], "?")
	return d
}
