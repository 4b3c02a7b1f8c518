package record

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/headers"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Input is what is known of the question: a policy's input without argument
// values. Of a request that was denied before it is as much as was read by then.
type Input struct {
	Principal policies.Principal
	Server    *Server // nil: not known
	Transport string
	Action    policies.Action // "": nothing was to be asked
	Call      *Call           // of a single message
	Calls     []Call          // of a batch; not nil
	Request   policies.Request
}

// Call is one message. Upkeep is what no policy is asked about.
type Call struct {
	policies.Call

	Upkeep bool

	ArgumentsShape, ParamsShape []Part // set by Parse; Append takes them from Arguments and Params
}

// rawMost is how much JSON of one kind is written as it came.
const rawMost = 2 << 10

// input appends what a policy sees, by the names of schema/input.json. Where
// there are names beside them, the policy does not see these: arguments_shape,
// params_shape, upkeep, digest, calls.
func (l *line) input(in *Input) {
	l.name("input")
	l.open('{')
	if in.Principal.Kind != "" {
		l.principal(&in.Principal)
	}
	if in.Server != nil {
		l.server(in.Server)
	}
	l.given("transport", in.Transport)
	l.given("action", string(in.Action))
	if in.Call != nil {
		l.name("call")
		l.call(in.Call)
	}
	if in.Calls != nil {
		l.list("calls", len(in.Calls), func(i int) { l.call(&in.Calls[i]) })
	}
	l.request(&in.Request)
	l.close('}')
}

func (l *line) principal(p *policies.Principal) {
	l.name("principal")
	l.open('{')
	l.text("kind", string(p.Kind))
	l.text("id", p.Subject)
	l.given("name", p.Name)
	if !p.Principal.Server.IsZero() {
		l.id("server", p.Principal.Server)
	}
	if p.Narrowed {
		l.list("scopes", len(p.Scopes), func(i int) { l.quote(p.Scopes[i]) })
	}
	l.given("client", p.Client)
	l.given("user", p.User)
	l.given("issuer", p.Issuer)
	l.raw("claims", p.Claims)
	if c := p.Certificate; c != nil {
		l.name("certificate")
		l.open('{')
		l.given("fingerprint", c.Fingerprint)
		l.given("serial", c.Serial)
		l.given("issuer", c.Issuer)
		l.given("uri", c.URI)
		if !c.NotAfter.IsZero() {
			l.number("not_after", c.NotAfter.UnixNano())
		}
		l.close('}')
	}
	l.close('}')
}

// id appends a server's id without making a string of it.
func (l *line) id(name string, id identity.ServerID) {
	l.name(name)
	l.dst = append(l.dst, '"')
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			l.dst = append(l.dst, '-')
		}
		l.dst = hex.AppendEncode(l.dst, part)
	}
	l.dst = append(l.dst, '"')
}

// raw appends JSON that somebody else wrote, unless it is too much.
func (l *line) raw(name string, value jsontext.Value) {
	if len(value) == 0 {
		return
	}
	short, err := jsontext.Value(nil), error(nil)
	if len(value) <= rawMost && !l.long() {
		short, err = jsontext.AppendFormat(nil, value)
	}
	if err != nil || short == nil {
		l.shortened = true
		return
	}
	l.plain(name, short)
}

func (l *line) call(c *Call) {
	l.open('{')
	l.given("method", c.Method)
	l.given("tool", c.Tool)
	l.given("prompt", c.Prompt)
	l.given("resource", c.Resource)
	l.given("resource_template", c.Template)
	l.given("task", c.Task)
	l.given("level", c.Level)
	if c.Ref != nil {
		l.name("ref")
		l.open('{')
		l.given("type", c.Ref.Type)
		l.given("name", c.Ref.Name)
		l.close('}')
	}
	l.texts("subscriptions", c.Subscriptions)
	if len(c.Arguments) > 0 {
		l.shape("arguments_shape", c.Arguments)
	}
	if len(c.Params) > 0 {
		l.shape("params_shape", c.Params)
	}
	l.given("protocol_version", c.ProtocolVersion)
	l.truth("notification", c.Notification)
	if c.Batch {
		l.number("batch_index", int64(c.BatchIndex))
	}
	l.truth("upkeep", c.Upkeep)
	l.close('}')
}

func (l *line) request(r *policies.Request) {
	if r.Method == "" {
		return // nothing was read
	}
	l.name("request")
	l.open('{')
	l.text("method", knownMethod(r.Method))
	l.given("path", r.Path)
	l.given("host", r.Host)
	l.given("source", r.Source)
	if len(r.Headers) > 0 {
		l.headers(r.Headers)
	}
	l.close('}')
}

// knownMethod keeps a caller from writing into the log what it likes.
func knownMethod(method string) string {
	switch method {
	case "POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH", "TRACE":
		return method
	}
	return "other"
}

// headers appends those that hold no secret, whatever the settings say that
// policies may see.
func (l *line) headers(seen []policies.Header) {
	names := make([]string, 0, len(seen))
	for _, h := range seen {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	l.name("headers")
	l.open('{')
	for _, name := range slices.Compact(names) {
		if headers.Secret(name) || len(name) > textLeast || l.long() {
			l.shortened = true
			continue
		}
		l.comma()
		l.quote(name)
		l.dst = append(l.dst, ':')
		l.open('[')
		for _, h := range seen {
			switch {
			case h.Name != name:
			case l.long():
				l.shortened = true
			default:
				l.comma()
				l.quote(h.Value)
			}
		}
		l.close(']')
	}
	l.close('}')
}

// Server is a server as records show it, made once: its own part of the input
// is the same for all of its requests. Grants and data that are too long for a
// record are named by their digest.
type Server struct {
	ID        string
	Name      string
	whole     []byte // JSON
	shortened bool

	// Set by Parse.

	Seen   *policies.Server
	Digest string // of grants and data that the record does not have; "": it has them
}

// NewServer makes what records show of a server.
func NewServer(seen *policies.Server) *Server {
	out := &Server{ID: seen.ID.String(), Name: seen.Name}
	l := line{dst: []byte{'{'}}
	l.text("id", out.ID)
	l.text("name", seen.Name)
	if len(seen.Labels) > 0 {
		l.labels(seen.Labels)
	}
	grants, data := compact(seen.Grants), compact(seen.Data)
	if len(grants)+len(data) > rawMost {
		l.text("digest", Digest(seen))
		grants, data = nil, nil
	}
	l.plain("grants", grants)
	l.plain("data", data)
	l.close('}')
	out.whole, out.shortened = slices.Clip(l.dst), l.shortened
	return out
}

func (l *line) plain(name string, value jsontext.Value) {
	if len(value) > 0 {
		l.name(name)
		l.dst = append(l.dst, value...)
	}
}

// compact is JSON on one line; what is none is too long for a record.
func compact(value jsontext.Value) jsontext.Value {
	if len(value) == 0 {
		return nil
	}
	out, err := jsontext.AppendFormat(nil, value)
	if err != nil {
		return make(jsontext.Value, rawMost+1)
	}
	return out
}

func (l *line) labels(labels map[string]string) {
	l.name("labels")
	l.open('{')
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if len(l.dst) > rawMost {
			l.shortened = true
			break
		}
		l.comma()
		l.quote(name)
		l.dst = append(l.dst, ':')
		l.quote(labels[name])
	}
	l.close('}')
}

// Digest names a server's grants and data: 16 hexadecimal digits.
func Digest(s *policies.Server) string {
	h := sha256.New()
	for _, part := range []jsontext.Value{s.Grants, s.Data} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":"))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// server appends all that is shown of a server, or its id where there is no
// room or no more is known.
func (l *line) server(s *Server) {
	l.name("server")
	if s.whole != nil && len(l.dst)-l.start+len(s.whole) < lineSoft {
		l.dst = append(l.dst, s.whole...)
		l.shortened = l.shortened || s.shortened
		return
	}
	l.shortened = l.shortened || s.whole != nil
	l.open('{')
	l.text("id", s.ID)
	l.close('}')
}
