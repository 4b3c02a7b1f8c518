package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Head is what control files a record by.
type Head struct {
	ID         string
	Time       time.Time
	Server     string
	Outcome    string
	Credential string
}

// ErrNotRecord says that a text is none.
var ErrNotRecord = errors.New("a record is not one line of JSON of at most 16 KiB with a decision_id")

// ParseHead reads what every record has, of an extauthz of this release.
func ParseHead(text []byte) (Head, error) {
	var in struct {
		ID         string    `json:"decision_id"`
		Time       time.Time `json:"timestamp"`
		Outcome    string    `json:"outcome"`
		Credential string    `json:"credential"`
		Input      struct {
			Server struct {
				ID string `json:"id"`
			} `json:"server"`
		} `json:"input"`
	}
	if len(text) > Most || json.Unmarshal(text, &in) != nil || in.ID == "" {
		return Head{}, ErrNotRecord
	}
	return Head{ID: in.ID, Time: in.Time, Server: in.Input.Server.ID, Outcome: in.Outcome, Credential: in.Credential}, nil
}

// Parse reads a record that Append wrote. What the policy saw of arguments is
// not in it: ArgumentsShape and ParamsShape are set where there were some. Nor
// are grants and data that were too long: Server.Digest is set. Shortened says
// that more is missing.
func Parse(text []byte) (*Record, error) {
	var in written
	if err := json.Unmarshal(text, &in); err != nil || in.ID == "" {
		return nil, ErrNotRecord
	}
	out := &Record{
		ID: in.ID, Time: in.Time, Revision: in.Revision,
		CheckTime: time.Duration(in.Metrics.Check), PolicyTime: time.Duration(in.Metrics.Policy),
		SettingsRevision: in.SettingsRevision, Replica: in.Replica, Peer: in.Peer,
		Outcome: in.Outcome, Reason: in.Reason, Detail: in.Detail, Status: in.Status,
		Credential: in.Credential, Session: in.Session, Upstream: in.Upstream, Shortened: in.Shortened,
	}
	if in.Result != nil {
		out.Result = in.Result.result()
	}
	var err error
	if out.Input, err = in.Input.input(); err != nil {
		return nil, fmt.Errorf("reading the input of record %s: %w", in.ID, err)
	}
	return out, nil
}

// Question is what the policy was asked about a message, as far as the record
// has it; nil for the one question of a request without messages.
func (r *Record) Question(c *Call) *policies.Input {
	in := &policies.Input{
		Principal: r.Input.Principal, Transport: r.Input.Transport, Action: r.Input.Action,
		Request: r.Input.Request, Time: r.Time,
	}
	if r.Input.Server != nil {
		in.Server = r.Input.Server.Seen
	}
	if c != nil {
		in.Call = &c.Call
	}
	return in
}

// Asked are the messages that a policy is asked about, in their order; none
// when it is asked about the request itself, or about nothing.
func (r *Record) Asked() []*Call {
	var out []*Call
	if c := r.Input.Call; c != nil && !c.Upkeep {
		out = append(out, c)
	}
	for i := range r.Input.Calls {
		if c := &r.Input.Calls[i]; !c.Upkeep {
			out = append(out, c)
		}
	}
	return out
}

// written is a record as it stands in the log.
type written struct {
	ID       string         `json:"decision_id"`
	Time     time.Time      `json:"timestamp"`
	Revision string         `json:"revision"`
	Input    writtenInput   `json:"input"`
	Result   *writtenResult `json:"result"`
	Metrics  struct {
		Check  int64 `json:"timer_check_ns"`
		Policy int64 `json:"timer_policy_ns"`
	} `json:"metrics"`
	SettingsRevision int64  `json:"settings_revision"`
	Replica          string `json:"replica"`
	Peer             string `json:"peer"`
	Outcome          string `json:"outcome"`
	Reason           string `json:"reason"`
	Detail           string `json:"detail"`
	Status           int    `json:"status"`
	Credential       string `json:"credential"`
	Session          bool   `json:"session"`
	Upstream         string `json:"upstream"`
	Shortened        bool   `json:"shortened"`
}

type writtenResult struct {
	Allow bool `json:"allow"`
	Hide  bool `json:"hide"`
	Index *int `json:"batch_index"`
	Deny  []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"deny"`
	Scopes  []string `json:"scopes_needed"`
	Headers []string `json:"headers"`
	Limits  []struct {
		By    []string `json:"by"`
		Rate  float64  `json:"rate"`
		Burst int      `json:"burst"`
	} `json:"limits"`
}

func (in *writtenResult) result() *Result {
	out := &Result{Batch: in.Index != nil}
	if out.Batch {
		out.Index = *in.Index
	}
	out.Allow, out.Hide, out.Scopes = in.Allow, in.Hide, in.Scopes
	for _, d := range in.Deny {
		out.Denials = append(out.Denials, policies.Denial{Code: d.Code, Text: d.Message})
	}
	for _, name := range in.Headers {
		out.Headers = append(out.Headers, policies.Header{Name: name})
	}
	for _, l := range in.Limits {
		out.Limits = append(out.Limits, policies.Limit{By: l.By, Rate: l.Rate, Burst: l.Burst})
	}
	return out
}

type writtenInput struct {
	Principal *writtenPrincipal `json:"principal"`
	Server    *writtenServer    `json:"server"`
	Transport string            `json:"transport"`
	Action    policies.Action   `json:"action"`
	Call      *writtenCall      `json:"call"`
	Calls     []writtenCall     `json:"calls"`
	Request   struct {
		Method  string              `json:"method"`
		Path    string              `json:"path"`
		Host    string              `json:"host"`
		Source  string              `json:"source"`
		Headers map[string][]string `json:"headers"`
	} `json:"request"`
}

func (in *writtenInput) input() (Input, error) {
	out := Input{Transport: in.Transport, Action: in.Action}
	var err error
	if in.Principal != nil {
		if out.Principal, err = in.Principal.principal(); err != nil {
			return out, err
		}
	}
	if in.Server != nil {
		if out.Server, err = in.Server.server(); err != nil {
			return out, err
		}
	}
	if in.Call != nil {
		out.Call = in.Call.call()
	}
	for i := range in.Calls {
		out.Calls = append(out.Calls, *in.Calls[i].call())
	}
	r := in.Request
	out.Request = policies.Request{Method: r.Method, Path: r.Path, Host: r.Host, Source: r.Source}
	for name, values := range r.Headers {
		for _, value := range values {
			out.Request.Headers = append(out.Request.Headers, policies.Header{Name: name, Value: value})
		}
	}
	return out, nil
}

type writtenPrincipal struct {
	Kind        identity.Kind  `json:"kind"`
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Server      string         `json:"server"`
	Scopes      *[]string      `json:"scopes"`
	Client      string         `json:"client"`
	User        string         `json:"user"`
	Issuer      string         `json:"issuer"`
	Claims      jsontext.Value `json:"claims"`
	Certificate *struct {
		Fingerprint string `json:"fingerprint"`
		Serial      string `json:"serial"`
		Issuer      string `json:"issuer"`
		URI         string `json:"uri"`
		NotAfter    int64  `json:"not_after"`
	} `json:"certificate"`
}

func (in *writtenPrincipal) principal() (policies.Principal, error) {
	out := policies.Principal{User: in.User, Claims: in.Claims, Narrowed: in.Scopes != nil}
	out.Principal = identity.Principal{Kind: in.Kind, Issuer: in.Issuer, Subject: in.ID, Client: in.Client, Name: in.Name}
	if out.Narrowed {
		out.Scopes = *in.Scopes
	}
	if c := in.Certificate; c != nil {
		out.Certificate = &policies.Certificate{
			Fingerprint: c.Fingerprint, Serial: c.Serial, Issuer: c.Issuer, URI: c.URI, NotAfter: timeOf(c.NotAfter),
		}
	}
	var err error
	if in.Server != "" {
		out.Principal.Server, err = identity.ParseServerID(in.Server)
	}
	return out, err
}

type writtenServer struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Grants jsontext.Value    `json:"grants"`
	Data   jsontext.Value    `json:"data"`
	Digest string            `json:"digest"`
}

func (in *writtenServer) server() (*Server, error) {
	id, err := identity.ParseServerID(in.ID)
	return &Server{ID: in.ID, Name: in.Name, Digest: in.Digest, Seen: &policies.Server{
		ID: id, Name: in.Name, Labels: in.Labels, Grants: in.Grants, Data: in.Data,
	}}, err
}

type writtenCall struct {
	Method string `json:"method"`
	Tool   string `json:"tool"`
	Prompt string `json:"prompt"`
	URI    string `json:"resource"`
	Task   string `json:"task"`
	Level  string `json:"level"`
	Ref    *struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"ref"`
	Template        string   `json:"resource_template"`
	Subscriptions   []string `json:"subscriptions"`
	ProtocolVersion string   `json:"protocol_version"`
	Notification    bool     `json:"notification"`
	BatchIndex      *int     `json:"batch_index"`
	ArgumentsShape  []Part   `json:"arguments_shape"`
	ParamsShape     []Part   `json:"params_shape"`
	Upkeep          bool     `json:"upkeep"`
}

func (in *writtenCall) call() *Call {
	out := &Call{Upkeep: in.Upkeep, ArgumentsShape: in.ArgumentsShape, ParamsShape: in.ParamsShape}
	out.Call = policies.Call{
		Method: in.Method, Tool: in.Tool, Prompt: in.Prompt, Resource: in.URI, Template: in.Template,
		Task: in.Task, Level: in.Level, Subscriptions: in.Subscriptions,
		ProtocolVersion: in.ProtocolVersion, Notification: in.Notification,
	}
	if in.Ref != nil {
		out.Ref = &policies.Ref{Type: in.Ref.Type, Name: in.Ref.Name}
	}
	if in.BatchIndex != nil {
		out.Batch, out.BatchIndex = true, *in.BatchIndex
	}
	return out
}
