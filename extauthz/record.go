package extauthz

import (
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// Record is the decision record of one request: one line of JSON. It holds no
// secret and no argument value. A text that is not UTF-8 is shown with U+FFFD.
type Record struct {
	RequestID  string    `json:"request_id"`
	Timestamp  time.Time `json:"timestamp"`
	Revision   int64     `json:"revision"` // of the settings that decided
	Replica    string    `json:"replica"`
	Outcome    string    `json:"outcome"` // allow, deny or error
	Reason     string    `json:"reason"`
	Detail     string    `json:"detail,omitzero"`
	Status     int       `json:"status,omitzero"` // of a denial
	Server     string    `json:"server,omitzero"`
	Route      string    `json:"route,omitzero"` // rpc or mcp
	HTTPMethod string    `json:"http_method,omitzero"`
	Source     string    `json:"source,omitzero"`
	Principal  string    `json:"principal,omitzero"` // kind:subject
	Name       string    `json:"principal_name,omitzero"`
	Credential string    `json:"credential,omitzero"` // the token's id
	Calls      []Called  `json:"calls,omitzero"`
	Session    bool      `json:"session,omitzero"`
	Upstream   string    `json:"upstream,omitzero"`
	Duration   int64     `json:"duration_us"`
}

// Called is one message of a request: what it is, not what it says.
type Called struct {
	Method string `json:"method,omitzero"`
	Tool   string `json:"tool,omitzero"`
}

// Append appends the record as JSON, as the tags say. It is written out because
// there is one for each request: by reflection it costs four times as much.
func (r *Record) Append(dst []byte) []byte {
	dst = appendText(dst, `{"request_id":`, r.RequestID)
	dst = append(dst, `,"timestamp":"`...)
	dst = r.Timestamp.AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","revision":`...)
	dst = strconv.AppendInt(dst, r.Revision, 10)
	dst = appendText(dst, `,"replica":`, r.Replica)
	dst = appendText(dst, `,"outcome":`, r.Outcome)
	dst = appendText(dst, `,"reason":`, r.Reason)
	dst = appendGiven(dst, `,"detail":`, r.Detail)
	if r.Status != 0 {
		dst = append(dst, `,"status":`...)
		dst = strconv.AppendInt(dst, int64(r.Status), 10)
	}
	dst = appendGiven(dst, `,"server":`, r.Server)
	dst = appendGiven(dst, `,"route":`, r.Route)
	dst = appendGiven(dst, `,"http_method":`, r.HTTPMethod)
	dst = appendGiven(dst, `,"source":`, r.Source)
	dst = appendGiven(dst, `,"principal":`, r.Principal)
	dst = appendGiven(dst, `,"principal_name":`, r.Name)
	dst = appendGiven(dst, `,"credential":`, r.Credential)
	dst = appendCalls(dst, r.Calls)
	if r.Session {
		dst = append(dst, `,"session":true`...)
	}
	dst = appendGiven(dst, `,"upstream":`, r.Upstream)
	dst = append(dst, `,"duration_us":`...)
	dst = strconv.AppendInt(dst, r.Duration, 10)
	return append(dst, '}')
}

func appendCalls(dst []byte, calls []Called) []byte {
	if calls == nil {
		return dst
	}
	dst = append(dst, `,"calls":[`...)
	for i, called := range calls {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		dst = appendGiven(dst, `"method":`, called.Method)
		if called.Tool != "" && called.Method != "" {
			dst = append(dst, ',')
		}
		dst = appendGiven(dst, `"tool":`, called.Tool)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendGiven appends a member unless its value is empty.
func appendGiven(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendText(dst, name, value)
}

func appendText(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst, _ = jsontext.AppendQuote(dst, value) // its error says that it put U+FFFD somewhere
	return dst
}

var errRecordsFull = errors.New("the decision log takes no record and is required")

const (
	textMost     = 256 // bytes of a caller's text in a record
	outcomeAllow = "allow"
	outcomeDeny  = "deny"
	outcomeError = "error"
)

// record is step 7: the decision is queued before its answer leaves.
func (s *Server) record(d *decision) error {
	outcome, reason, detail, status := outcomeAllow, reasonAllowed, "", 0
	if d.denied != nil {
		outcome, reason, detail = outcomeDeny, d.denied.reason, d.denied.detail
		status = d.status
	}
	record := s.recordOf(d)
	record.Outcome, record.Reason, record.Detail, record.Status = outcome, string(reason), detail, status
	if d.snap.gateway.recordsNeeded && s.records.broken.Load() {
		return errRecordsFull
	}
	if !s.records.offer(&record) && d.snap.gateway.recordsNeeded {
		return errRecordsFull
	}
	s.metrics.decided(outcome, reason, s.now().Sub(d.started))
	return nil
}

// recordFault records a request that nobody could decide.
func (s *Server) recordFault(d *decision, err error) {
	s.metrics.decided(outcomeError, "error", s.now().Sub(d.started))
	record := s.recordOf(d)
	record.Outcome, record.Reason, record.Detail, record.Status = outcomeError, "error", shortened(err.Error()), 503
	s.records.offer(&record)
}

func (s *Server) recordOf(d *decision) Record {
	out := Record{Timestamp: d.started.UTC(), Replica: s.cfg.Replica, Duration: s.now().Sub(d.started).Microseconds()}
	if d.snap != nil {
		out.Revision = d.snap.Revision
	}
	if d.req != nil {
		out.RequestID, out.HTTPMethod, out.Source = d.req.id, knownMethod(d.req.method), d.req.peer
		out.Server, out.Route = d.req.serverID, "mcp"
		if d.req.transport == jsonrpc.RPC {
			out.Route = "rpc"
		}
	}
	if d.who.ID != "" {
		out.Credential, out.Name = d.who.ID, d.who.Principal.Name
		out.Principal = string(d.who.Principal.Kind) + ":" + d.who.Principal.Subject
	}
	for _, m := range d.call.messages {
		called := Called{Method: shortened(m.Method)}
		if m.Method == "tools/call" {
			called.Tool = shortened(m.Selector)
		}
		out.Calls = append(out.Calls, called)
	}
	out.Session = d.session != nil
	if d.allowed {
		out.Upstream = d.route.address.String()
	}
	return out
}

// knownMethod keeps a caller from writing into the log what it likes.
func knownMethod(method string) string {
	switch method {
	case "POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH", "TRACE":
		return method
	}
	return "other"
}

func shortened(text string) string {
	if len(text) <= textMost {
		return text
	}
	return text[:textMost] + "…"
}
