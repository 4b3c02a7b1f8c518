package policies

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// object collects members; empty ones stay out, so that what is not there is
// absent and never empty.
type object [][2]*ast.Term

func (o *object) add(name string, value *ast.Term) {
	*o = append(*o, [2]*ast.Term{ast.InternedTerm(name), value})
}

func (o *object) text(name, value string) {
	if value != "" {
		o.add(name, ast.StringTerm(value))
	}
}

func (o *object) word(name, value string) { // one of few, which OPA keeps made
	if value != "" {
		o.add(name, ast.InternedTerm(value))
	}
}

// json adds a value that was checked to be JSON by whoever has it first.
func (o *object) json(name string, value jsontext.Value) error {
	if len(value) == 0 {
		return nil
	}
	term, err := termOf(value)
	if err != nil {
		return fmt.Errorf("input.%s: %w", name, err)
	}
	o.add(name, term)
	return nil
}

func (o *object) texts(name string, values []string) {
	terms := make([]*ast.Term, len(values))
	for i, value := range values {
		terms[i] = ast.StringTerm(value)
	}
	o.add(name, ast.ArrayTerm(terms...))
}

func (o object) term() *ast.Term { return ast.NewTerm(ast.NewObject(o...)) }

// term builds the input, without the parts that the policy cannot read.
func (in *Input) term(reads *Reads) (*ast.Term, error) {
	root := make(object, 0, 7)
	principal, err := in.Principal.term()
	if err != nil {
		return nil, err
	}
	root.add("principal", principal)
	if in.Server != nil {
		server, err := in.Server.read()
		if err != nil {
			return nil, err
		}
		root.add("server", server)
	}
	root.word("transport", in.Transport)
	root.word("action", string(in.Action))
	if in.Call != nil {
		call, err := in.Call.term(reads)
		if err != nil {
			return nil, err
		}
		root.add("call", call)
	}
	if reads.Request {
		root.add("request", in.Request.term())
	}
	if reads.Time && !in.Time.IsZero() {
		root.add("time", nanoseconds(in.Time))
	}
	return root.term(), nil
}

// nanoseconds since 1970 in UTC, what OPA's time functions take.
func nanoseconds(t time.Time) *ast.Term {
	return ast.NewTerm(ast.Number(strconv.FormatInt(t.UnixNano(), 10)))
}

func (p *Principal) term() (*ast.Term, error) {
	o := make(object, 0, 8)
	o.word("kind", string(p.Kind))
	o.text("id", p.Subject)
	o.text("name", p.Name)
	if !p.Principal.Server.IsZero() {
		o.text("server", p.Principal.Server.String())
	}
	if p.Narrowed {
		o.texts("scopes", p.Scopes)
	}
	o.text("client", p.Client)
	o.text("user", p.User)
	o.text("issuer", p.Issuer)
	if err := o.json("claims", p.Claims); err != nil {
		return nil, err
	}
	if c := p.Certificate; c != nil {
		o.add("certificate", c.term())
	}
	return o.term(), nil
}

func (c *Certificate) term() *ast.Term {
	o := make(object, 0, 5)
	o.text("fingerprint", c.Fingerprint)
	o.text("serial", c.Serial)
	o.text("issuer", c.Issuer)
	o.text("uri", c.URI)
	if !c.NotAfter.IsZero() {
		o.add("not_after", nanoseconds(c.NotAfter))
	}
	return o.term()
}

// read makes the server's term once: it is asked for with each call.
func (s *Server) read() (*ast.Term, error) {
	if term := s.term.Load(); term != nil {
		return term, nil
	}
	o := make(object, 0, 5)
	o.text("id", s.ID.String())
	o.text("name", s.Name)
	if len(s.Labels) > 0 {
		labels := make(object, 0, len(s.Labels))
		for name, value := range s.Labels {
			labels.add(name, ast.StringTerm(value))
		}
		o.add("labels", labels.term())
	}
	if err := o.json("grants", s.Grants); err != nil {
		return nil, err
	}
	if err := o.json("data", s.Data); err != nil {
		return nil, err
	}
	term := o.term()
	s.term.Store(term)
	return term, nil
}

func (c *Call) term(reads *Reads) (*ast.Term, error) {
	o := make(object, 0, 8)
	o.text("method", c.Method)
	o.text("tool", c.Tool)
	o.text("prompt", c.Prompt)
	o.text("resource", c.Resource)
	o.text("resource_template", c.Template)
	o.text("task", c.Task)
	o.text("level", c.Level)
	if c.Ref != nil {
		ref := make(object, 0, 2)
		ref.text("type", c.Ref.Type)
		ref.text("name", c.Ref.Name)
		o.add("ref", ref.term())
	}
	if len(c.Subscriptions) > 0 {
		o.texts("subscriptions", c.Subscriptions)
	}
	if reads.Arguments {
		if err := o.json("arguments", c.Arguments); err != nil {
			return nil, err
		}
		if err := o.json("params", c.Params); err != nil {
			return nil, err
		}
	}
	o.text("protocol_version", c.ProtocolVersion)
	if c.Notification {
		o.add("notification", ast.InternedTerm(true))
	}
	if c.Batch {
		o.add("batch_index", ast.InternedTerm(c.BatchIndex))
	}
	return o.term(), nil
}

func (r *Request) term() *ast.Term {
	o := make(object, 0, 5)
	o.word("method", r.Method)
	o.text("path", r.Path)
	o.text("host", r.Host)
	o.text("source", r.Source)
	if len(r.Headers) > 0 {
		headers := make(object, 0, len(r.Headers))
		for _, name := range headerNames(r.Headers) {
			var values []string
			for _, h := range r.Headers {
				if h.Name == name {
					values = append(values, h.Value)
				}
			}
			headers.texts(name, values)
		}
		o.add("headers", headers.term())
	}
	return o.term()
}

func headerNames(headers []Header) []string {
	names := make([]string, len(headers))
	for i, h := range headers {
		names[i] = h.Name
	}
	slices.Sort(names)
	return slices.Compact(names)
}
