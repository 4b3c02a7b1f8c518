package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

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

// writtenInput is the policy's input with what stands beside it in records.
type writtenInput struct {
	policies.InputJSON

	Server *writtenServer `json:"server"`
	Call   *writtenCall   `json:"call"`
	Calls  []writtenCall  `json:"calls"`
}

type writtenServer struct {
	policies.ServerJSON

	Digest string `json:"digest"`
}

type writtenCall struct {
	policies.CallJSON

	ArgumentsShape []Part `json:"arguments_shape"`
	ParamsShape    []Part `json:"params_shape"`
	Upkeep         bool   `json:"upkeep"`
}

func (in *writtenInput) input() (Input, error) {
	if in.Server != nil {
		in.InputJSON.Server = &in.Server.ServerJSON
	}
	read, err := in.Input()
	if err != nil {
		return Input{}, err
	}
	out := Input{Principal: read.Principal, Transport: read.Transport, Action: read.Action, Request: read.Request}
	if in.Server != nil {
		out.Server = &Server{ID: in.Server.ID, Name: in.Server.Name, Digest: in.Server.Digest, Seen: read.Server}
	}
	if in.Call != nil {
		out.Call = in.Call.call()
	}
	for i := range in.Calls {
		out.Calls = append(out.Calls, *in.Calls[i].call())
	}
	return out, nil
}

func (in *writtenCall) call() *Call {
	return &Call{Call: *in.Read(), Upkeep: in.Upkeep, ArgumentsShape: in.ArgumentsShape, ParamsShape: in.ParamsShape}
}
