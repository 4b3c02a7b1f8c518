package policies

import (
	"fmt"
	"math/bits"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// The containers that the parts lie in.
var (
	namePrincipal = ast.StringTerm("principal")
	nameCall      = ast.StringTerm("call")
	nameRequest   = ast.StringTerm("request")
)

// builder collects those of an object's members that the policy can read.
type builder struct {
	object

	parts part
	err   error // the first
}

func (b *builder) put(p part, value *ast.Term) {
	b.object = append(b.object, [2]*ast.Term{names[bits.TrailingZeros64(uint64(p))], value})
}

func (b *builder) text(p part, value string) {
	if value != "" && b.parts.has(p) {
		b.put(p, ast.StringTerm(value))
	}
}

func (b *builder) word(p part, value string) {
	if value != "" && b.parts.has(p) {
		b.put(p, wordTerm(value))
	}
}

func (b *builder) json(p part, value jsontext.Value) {
	if len(value) == 0 || !b.parts.has(p) || b.err != nil {
		return
	}
	term, err := termOf(value, valuesMost)
	if err != nil {
		if (partArguments | partParams).has(p) {
			err = fmt.Errorf("%w: %w", ErrArguments, err)
		}
		b.err = fmt.Errorf("input.%s: %w", paths[bits.TrailingZeros64(uint64(p))], err)
		return
	}
	b.put(p, term)
}

// under adds what inner collected as one object, unless the policy can read
// nothing of it.
func (b *builder) under(name *ast.Term, parts part, inner *builder) {
	if b.err == nil {
		b.err = inner.err
	}
	if b.parts.has(parts) {
		b.object = append(b.object, [2]*ast.Term{name, inner.term()})
	}
}

// term builds the input, without the parts that the policy cannot read.
func (in *Input) term(reads *Reads) (*ast.Term, error) {
	var room [6][2]*ast.Term
	b := builder{parts: reads.parts, object: room[:0]}
	in.Principal.build(&b)
	if in.Server != nil && b.parts.has(partServer) {
		server, err := in.Server.read()
		if err != nil {
			return nil, err
		}
		b.put(partServer, server.term)
	}
	b.word(partTransport, in.Transport)
	b.word(partAction, string(in.Action))
	if in.Call != nil {
		in.Call.build(&b)
	}
	in.Request.build(&b)
	if b.parts.has(partTime) && !in.Time.IsZero() {
		b.put(partTime, nanosecondsTerm(in.Time))
	}
	return b.term(), b.err
}

func (p *Principal) build(b *builder) {
	var room [10][2]*ast.Term
	o := builder{parts: b.parts, object: room[:0]}
	o.word(partKind, string(p.Kind))
	o.text(partID, p.Subject)
	o.text(partName, p.Name)
	if o.parts.has(partPrincipalServer) && !p.Principal.Server.IsZero() {
		o.text(partPrincipalServer, p.Principal.Server.String())
	}
	if p.Narrowed && o.parts.has(partScopes) {
		o.put(partScopes, textsTerm(p.Scopes))
	}
	o.text(partClient, p.Client)
	o.text(partUser, p.User)
	o.text(partIssuer, p.Issuer)
	o.json(partClaims, p.Claims)
	if p.Certificate != nil && o.parts.has(partCertificate) {
		o.put(partCertificate, p.Certificate.term())
	}
	b.under(namePrincipal, partPrincipal, &o)
}

func (c *Certificate) term() *ast.Term {
	o := make(object, 0, 5)
	o.text("fingerprint", c.Fingerprint)
	o.text("serial", c.Serial)
	o.text("issuer", c.Issuer)
	o.text("uri", c.URI)
	if !c.NotAfter.IsZero() {
		o.add("not_after", nanosecondsTerm(c.NotAfter))
	}
	return o.term()
}

func (c *Call) build(b *builder) {
	var room [8][2]*ast.Term
	o := builder{parts: b.parts, object: room[:0]}
	o.word(partMethod, c.Method)
	o.text(partTool, c.Tool)
	o.text(partPrompt, c.Prompt)
	o.text(partResource, c.Resource)
	o.text(partTemplate, c.Template)
	o.text(partTask, c.Task)
	o.text(partLevel, c.Level)
	if c.Ref != nil && o.parts.has(partRef) {
		o.put(partRef, c.Ref.term())
	}
	if len(c.Subscriptions) > 0 && o.parts.has(partSubscriptions) {
		o.put(partSubscriptions, textsTerm(c.Subscriptions))
	}
	o.json(partArguments, c.Arguments)
	o.json(partParams, c.Params)
	o.text(partVersion, c.ProtocolVersion)
	if c.Notification && o.parts.has(partNotification) {
		o.put(partNotification, ast.InternedTerm(true))
	}
	if c.Batch && o.parts.has(partBatch) {
		o.put(partBatch, ast.InternedTerm(c.BatchIndex))
	}
	b.under(nameCall, partCall, &o)
}

func (r *Ref) term() *ast.Term {
	o := make(object, 0, 2)
	o.text("type", r.Type)
	o.text("name", r.Name)
	return o.term()
}

func (r *Request) build(b *builder) {
	if !b.parts.has(partRequest) {
		return
	}
	o := builder{parts: b.parts}
	o.word(partVerb, r.Method)
	o.text(partPath, r.Path)
	o.text(partHost, r.Host)
	o.text(partSource, r.Source)
	if len(r.Headers) > 0 && o.parts.has(partHeaders) {
		o.put(partHeaders, headersTerm(r.Headers))
	}
	b.under(nameRequest, partRequest, &o)
}

// headersTerm groups lines by name, in the order in which they came.
func headersTerm(headers []Header) *ast.Term {
	lines := map[string][]string{}
	for _, h := range headers {
		lines[h.Name] = append(lines[h.Name], h.Value)
	}
	o := make(object, 0, len(lines))
	for name, values := range lines {
		o.add(name, textsTerm(values))
	}
	return o.term()
}
