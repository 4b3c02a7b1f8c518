package extauthz

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

// The text of a question, in base64url. A number is an unsigned varint, a text
// its length and its bytes:
//
//	version, flags, action, number of the server's record: 8 bytes
//	policy       revision: text
//	principal    kind issuer subject client name user: texts; server: 16 bytes
//	scopes       how many, texts
//	claims       text
//	certificate  with its flag: fingerprint serial issuer uri, unix seconds (8 bytes)
//	request      method path host source: texts; headers: how many, name value
//	version      of MCP: text
//	calls        unless withheld: how many, each:
//	  index, flags, method tool prompt resource template task level: texts
//	  ref        with its flag: type name; subscriptions: how many, texts
//	  arguments params: texts
const (
	questionVersion = 1

	questionRPC         = 1 << 0
	questionNarrowed    = 1 << 1
	questionCertificate = 1 << 2
	questionWithheld    = 1 << 3 // arguments
	questionUncalled    = 1 << 4 // calls
	questionFlags       = 1<<5 - 1

	callNotification = 1 << 0
	callBatch        = 1 << 1
	callRef          = 1 << 2
	callFlags        = 1<<3 - 1
)

// actionBytes are the actions that are asked again.
var actionBytes = [...]policies.Action{1: policies.ActionCall, 2: policies.ActionOpenStream}

func (q *question) flags() (out byte) {
	for _, flag := range []struct {
		set bool
		bit byte
	}{
		{q.asked.Transport == transportRPC, questionRPC},
		{q.asked.Principal.Narrowed, questionNarrowed},
		{q.asked.Principal.Certificate != nil, questionCertificate},
		{q.withheld == withheldArguments, questionWithheld},
		{q.withheld == withheldCalls, questionUncalled},
	} {
		if flag.set {
			out |= flag.bit
		}
	}
	return out
}

func actionByte(action policies.Action) byte {
	for i, known := range actionBytes {
		if known == action {
			return byte(i)
		}
	}
	return 0 // which parseQuestion refuses
}

func (q *question) append(dst []byte) []byte {
	dst = append(dst, questionVersion, q.flags(), actionByte(q.asked.Action))
	dst = binary.BigEndian.AppendUint64(dst, q.seen)
	dst = appendStrings(dst, q.policy)
	dst = appendPrincipal(dst, &q.asked.Principal)
	dst = appendRequest(dst, &q.asked.Request)
	dst = appendStrings(dst, q.version)
	if q.withheld == withheldCalls {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(q.calls)))
	for i := range q.calls {
		dst = q.appendCall(dst, &q.calls[i])
	}
	return dst
}

func appendPrincipal(dst []byte, p *policies.Principal) []byte {
	dst = appendStrings(dst, string(p.Kind), p.Issuer, p.Subject, p.Client, p.Name, p.User)
	dst = append(dst, p.Server[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(p.Scopes)))
	dst = appendStrings(dst, p.Scopes...)
	dst = appendStrings(dst, string(p.Claims))
	if c := p.Certificate; c != nil {
		dst = appendStrings(dst, c.Fingerprint, c.Serial, c.Issuer, c.URI)
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.NotAfter.Unix()))
	}
	return dst
}

func appendRequest(dst []byte, r *policies.Request) []byte {
	dst = appendStrings(dst, r.Method, r.Path, r.Host, r.Source)
	dst = binary.AppendUvarint(dst, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = appendStrings(dst, h.Name, h.Value)
	}
	return dst
}

func (q *question) appendCall(dst []byte, c *policies.Call) []byte {
	var flags byte
	if c.Notification {
		flags |= callNotification
	}
	if c.Batch {
		flags |= callBatch
	}
	if c.Ref != nil {
		flags |= callRef
	}
	dst = append(binary.AppendUvarint(dst, uint64(c.BatchIndex)), flags)
	dst = appendStrings(dst, c.Method, c.Tool, c.Prompt, c.Resource, c.Template, c.Task, c.Level)
	if c.Ref != nil {
		dst = appendStrings(dst, c.Ref.Type, c.Ref.Name)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Subscriptions)))
	dst = appendStrings(dst, c.Subscriptions...)
	if q.withheld == withheldArguments {
		return appendStrings(dst, "", "")
	}
	return appendStrings(dst, string(c.Arguments), string(c.Params))
}

func appendStrings(dst []byte, texts ...string) []byte {
	for _, text := range texts {
		dst = binary.AppendUvarint(dst, uint64(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// parseQuestion reads exactly what the writer writes, and nothing else: what is
// written in another way comes out of the writer different.
func parseQuestion(text string) (*question, error) {
	in, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(text) > questionMost || strings.ContainsAny(text, "\r\n") {
		return nil, errQuestion
	}
	r := scanner{rest: in}
	q := r.question()
	if r.wrong || len(r.rest) > 0 || string(q.append(make([]byte, 0, len(in)))) != string(in) {
		return nil, errQuestion
	}
	return q, nil
}

// scanner takes one part after another; once wrong, it gives nothing more.
type scanner struct {
	rest  []byte
	wrong bool
}

func (r *scanner) take(n int) []byte {
	if r.wrong || n < 0 || n > len(r.rest) {
		r.wrong = true
		return nil
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

func (r *scanner) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *scanner) integer() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// number is at most as large as what is left could need: each thing that is
// counted takes a byte.
func (r *scanner) number() int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > questionMost || r.take(size) == nil {
		r.wrong = true
		return 0
	}
	return int(n)
}

func (r *scanner) text() string { return string(r.take(r.number())) }

func (r *scanner) value() jsontext.Value {
	if b := r.take(r.number()); len(b) > 0 {
		return jsontext.Value(b)
	}
	return nil
}

func (r *scanner) texts(into ...*string) {
	for _, text := range into {
		*text = r.text()
	}
}

func (r *scanner) list() (out []string) {
	for range r.number() {
		if r.wrong {
			return nil
		}
		out = append(out, r.text())
	}
	return out
}

func (r *scanner) question() *question {
	q := &question{}
	version, flags, action := r.byte(), r.byte(), r.byte()
	if version != questionVersion || flags&^questionFlags != 0 || action == 0 || int(action) >= len(actionBytes) {
		r.wrong = true
		return q
	}
	q.seen, q.policy = r.integer(), r.text()
	in := &q.asked
	in.Action, in.Transport, in.Principal.Narrowed = actionBytes[action], transportMCP, flags&questionNarrowed != 0
	if flags&questionRPC != 0 {
		in.Transport = transportRPC
	}
	r.principal(&in.Principal, flags&questionCertificate != 0)
	r.request(&in.Request)
	q.version = r.text()
	switch {
	case flags&questionUncalled != 0:
		q.withheld = withheldCalls
		return q
	case flags&questionWithheld != 0:
		q.withheld = withheldArguments
	}
	for range r.number() {
		if r.wrong || len(q.calls) == jsonrpc.MaxBatch {
			r.wrong = true
			return q
		}
		q.calls = append(q.calls, r.call(q.version))
	}
	return q
}

func (r *scanner) principal(p *policies.Principal, certified bool) {
	var kind string
	r.texts(&kind, &p.Issuer, &p.Subject, &p.Client, &p.Principal.Name, &p.User)
	p.Kind = identity.Kind(kind)
	copy(p.Principal.Server[:], r.take(len(p.Principal.Server)))
	p.Scopes, p.Claims = r.list(), r.value()
	if !certified {
		return
	}
	p.Certificate = &policies.Certificate{}
	r.texts(&p.Certificate.Fingerprint, &p.Certificate.Serial, &p.Certificate.Issuer, &p.Certificate.URI)
	p.Certificate.NotAfter = time.Unix(int64(r.integer()), 0).UTC()
}

func (r *scanner) request(out *policies.Request) {
	r.texts(&out.Method, &out.Path, &out.Host, &out.Source)
	for range r.number() {
		if r.wrong {
			return
		}
		var h policies.Header
		r.texts(&h.Name, &h.Value)
		out.Headers = append(out.Headers, h)
	}
}

func (r *scanner) call(version string) (c policies.Call) {
	c.ProtocolVersion, c.BatchIndex = version, r.number()
	flags := r.byte()
	if flags&^callFlags != 0 {
		r.wrong = true
	}
	c.Notification, c.Batch = flags&callNotification != 0, flags&callBatch != 0
	r.texts(&c.Method, &c.Tool, &c.Prompt, &c.Resource, &c.Template, &c.Task, &c.Level)
	if flags&callRef != 0 {
		c.Ref = &policies.Ref{}
		r.texts(&c.Ref.Type, &c.Ref.Name)
	}
	c.Subscriptions = r.list()
	c.Arguments, c.Params = r.value(), r.value()
	return c
}
