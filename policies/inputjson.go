package policies

import (
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// The members of the input as schema/input.json names them. Decision records are
// read with those that are exported.
type (
	// InputJSON is an Input.
	InputJSON struct {
		Principal principalJSON `json:"principal"`
		Server    *ServerJSON   `json:"server,omitzero"`
		Transport string        `json:"transport,omitzero"`
		Action    Action        `json:"action,omitzero"`
		Call      *CallJSON     `json:"call,omitzero"`
		Request   *requestJSON  `json:"request,omitzero"`
		Time      *int64        `json:"time,omitzero"`
	}
	principalJSON struct {
		Kind        identity.Kind    `json:"kind,omitzero"`
		ID          string           `json:"id,omitzero"`
		Name        string           `json:"name,omitzero"`
		Server      string           `json:"server,omitzero"`
		Scopes      *[]string        `json:"scopes,omitzero"`
		Client      string           `json:"client,omitzero"`
		User        string           `json:"user,omitzero"`
		Issuer      string           `json:"issuer,omitzero"`
		Claims      jsontext.Value   `json:"claims,omitzero"`
		Certificate *certificateJSON `json:"certificate,omitzero"`
	}
	certificateJSON struct {
		Fingerprint string `json:"fingerprint,omitzero"`
		Serial      string `json:"serial,omitzero"`
		Issuer      string `json:"issuer,omitzero"`
		URI         string `json:"uri,omitzero"`
		NotAfter    *int64 `json:"not_after,omitzero"`
	}
	// ServerJSON is a Server.
	ServerJSON struct {
		ID     string            `json:"id,omitzero"`
		Name   string            `json:"name,omitzero"`
		Labels map[string]string `json:"labels,omitzero"`
		Grants jsontext.Value    `json:"grants,omitzero"`
		Data   jsontext.Value    `json:"data,omitzero"`
	}
	// CallJSON is a Call.
	CallJSON struct {
		Method          string         `json:"method,omitzero"`
		Tool            string         `json:"tool,omitzero"`
		Prompt          string         `json:"prompt,omitzero"`
		Resource        string         `json:"resource,omitzero"`
		Template        string         `json:"resource_template,omitzero"`
		Task            string         `json:"task,omitzero"`
		Level           string         `json:"level,omitzero"`
		Ref             *refJSON       `json:"ref,omitzero"`
		Subscriptions   []string       `json:"subscriptions,omitzero"`
		Arguments       jsontext.Value `json:"arguments,omitzero"`
		Params          jsontext.Value `json:"params,omitzero"`
		ProtocolVersion string         `json:"protocol_version,omitzero"`
		Notification    bool           `json:"notification,omitzero"`
		BatchIndex      *int           `json:"batch_index,omitzero"`
	}
	refJSON struct {
		Type string `json:"type,omitzero"`
		Name string `json:"name,omitzero"`
	}
	requestJSON struct {
		Method  string              `json:"method,omitzero"`
		Path    string              `json:"path,omitzero"`
		Host    string              `json:"host,omitzero"`
		Source  string              `json:"source,omitzero"`
		Headers map[string][]string `json:"headers,omitzero"`
	}
)

// AppendJSON writes the input as policies see it, one JSON object on one line.
// Bytes that are not UTF-8 become U+FFFD. The error is that of a value in it
// which is not JSON.
func (in *Input) AppendJSON(out []byte) ([]byte, error) {
	written, err := json.Marshal(in.json(), json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return out, err
	}
	return append(out, written...), nil
}

func (in *Input) json() *InputJSON {
	out := &InputJSON{
		Principal: in.Principal.json(), Transport: in.Transport, Action: in.Action,
		Request: in.Request.json(), Time: nanosecondsOf(in.Time),
	}
	if s := in.Server; s != nil {
		out.Server = &ServerJSON{Name: s.Name, Grants: given(s.Grants), Data: given(s.Data)}
		if !s.ID.IsZero() {
			out.Server.ID = s.ID.String()
		}
		if len(s.Labels) > 0 {
			out.Server.Labels = s.Labels
		}
	}
	if in.Call != nil {
		out.Call = in.Call.json()
	}
	return out
}

// given is nil for what is absent.
func given(value jsontext.Value) jsontext.Value {
	if len(value) == 0 {
		return nil
	}
	return value
}

func nanosecondsOf(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixNano())
}

func timeOf(nanoseconds *int64) time.Time {
	if nanoseconds == nil {
		return time.Time{}
	}
	return time.Unix(0, *nanoseconds).UTC()
}

func (p *Principal) json() principalJSON {
	out := principalJSON{
		Kind: p.Kind, ID: p.Subject, Name: p.Name, Client: p.Client,
		User: p.User, Issuer: p.Issuer, Claims: given(p.Claims),
	}
	if !p.Principal.Server.IsZero() {
		out.Server = p.Principal.Server.String()
	}
	if p.Narrowed {
		out.Scopes = new(p.Scopes)
	}
	if c := p.Certificate; c != nil {
		out.Certificate = &certificateJSON{
			Fingerprint: c.Fingerprint, Serial: c.Serial, Issuer: c.Issuer, URI: c.URI, NotAfter: nanosecondsOf(c.NotAfter),
		}
	}
	return out
}

func (c *Call) json() *CallJSON {
	out := &CallJSON{
		Method: c.Method, Tool: c.Tool, Prompt: c.Prompt, Resource: c.Resource, Template: c.Template,
		Task: c.Task, Level: c.Level, Arguments: given(c.Arguments), Params: given(c.Params),
		ProtocolVersion: c.ProtocolVersion, Notification: c.Notification,
	}
	if c.Ref != nil {
		out.Ref = &refJSON{Type: c.Ref.Type, Name: c.Ref.Name}
	}
	if len(c.Subscriptions) > 0 {
		out.Subscriptions = c.Subscriptions
	}
	if c.Batch {
		out.BatchIndex = new(c.BatchIndex)
	}
	return out
}

func (r *Request) json() *requestJSON {
	out := &requestJSON{Method: r.Method, Path: r.Path, Host: r.Host, Source: r.Source}
	for _, h := range r.Headers {
		if out.Headers == nil {
			out.Headers = map[string][]string{}
		}
		out.Headers[h.Name] = append(out.Headers[h.Name], h.Value)
	}
	return out
}

// Input is what AppendJSON wrote. The error is that of a server's id.
func (j *InputJSON) Input() (Input, error) {
	out := Input{Transport: j.Transport, Action: j.Action, Time: timeOf(j.Time)}
	var err error
	if out.Principal, err = j.Principal.principal(); err != nil {
		return Input{}, err
	}
	if s := j.Server; s != nil {
		out.Server = &Server{Name: s.Name, Labels: s.Labels, Grants: s.Grants, Data: s.Data}
		if out.Server.ID, err = identity.ParseServerID(s.ID); err != nil {
			return Input{}, wrongAt("server.id", err)
		}
	}
	if j.Call != nil {
		out.Call = j.Call.Read()
	}
	if r := j.Request; r != nil {
		out.Request = Request{Method: r.Method, Path: r.Path, Host: r.Host, Source: r.Source}
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			for _, value := range r.Headers[name] {
				out.Request.Headers = append(out.Request.Headers, Header{Name: name, Value: value})
			}
		}
	}
	return out, nil
}

func (j *principalJSON) principal() (Principal, error) {
	out := Principal{User: j.User, Claims: j.Claims}
	out.Principal = identity.Principal{Kind: j.Kind, Subject: j.ID, Name: j.Name, Client: j.Client, Issuer: j.Issuer}
	if j.Scopes != nil {
		out.Scopes, out.Narrowed = *j.Scopes, true
	}
	if c := j.Certificate; c != nil {
		out.Certificate = &Certificate{
			Fingerprint: c.Fingerprint, Serial: c.Serial, Issuer: c.Issuer, URI: c.URI, NotAfter: timeOf(c.NotAfter),
		}
	}
	if j.Server == "" {
		return out, nil
	}
	var err error
	if out.Principal.Server, err = identity.ParseServerID(j.Server); err != nil {
		return Principal{}, wrongAt("principal.server", err)
	}
	return out, nil
}

// Read is the message that was written.
func (j *CallJSON) Read() *Call {
	out := &Call{
		Method: j.Method, Tool: j.Tool, Prompt: j.Prompt, Resource: j.Resource, Template: j.Template,
		Task: j.Task, Level: j.Level, Subscriptions: j.Subscriptions, Arguments: j.Arguments, Params: j.Params,
		ProtocolVersion: j.ProtocolVersion, Notification: j.Notification,
	}
	if j.Ref != nil {
		out.Ref = &Ref{Type: j.Ref.Type, Name: j.Ref.Name}
	}
	if j.BatchIndex != nil {
		out.Batch, out.BatchIndex = true, *j.BatchIndex
	}
	return out
}
