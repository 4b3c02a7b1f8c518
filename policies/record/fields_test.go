package record_test

import (
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/inputtest"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// whole has something in every field of an input.
func whole() *policies.Input {
	return &policies.Input{
		Principal: policies.Principal{
			Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "s", Name: "n", Client: "c", Issuer: "i", Server: identity.ServerID{1}},
			Scopes:    []string{"a"}, Narrowed: true, User: "u", Claims: []byte(`{"sub":"s"}`),
			Certificate: &policies.Certificate{Fingerprint: "f", Serial: "1", Issuer: "i", URI: "spiffe://x/y", NotAfter: time.Unix(1, 0)},
		},
		Server: &policies.Server{
			ID: identity.ServerID{1}, Name: "n", Labels: map[string]string{"a": "b"},
			Grants: []byte(`[{"principal":{"id":"i"},"tools":["a*"]}]`), Data: []byte(`{"x":[1]}`),
		},
		Transport: "mcp", Action: policies.ActionCall, Time: time.Unix(1, 5),
		Call: &policies.Call{
			Method: "m", Tool: "t", Prompt: "p", Resource: "r", Template: "rt", Task: "ta", Level: "l", Ref: &policies.Ref{Type: "ref/prompt", Name: "n"},
			Subscriptions: []string{"s"}, Arguments: []byte(`{"a":1}`), Params: []byte(`[1]`), ProtocolVersion: "v", Notification: true, Batch: true, BatchIndex: 1,
		},
		Request: policies.Request{Method: "POST", Path: "/", Host: "h", Source: "::1", Headers: []policies.Header{{Name: "x-a", Value: "1"}, {Name: "x-b", Value: "2"}}},
	}
}

func recordOf(in *policies.Input) *record.Record {
	out := &record.Record{ID: "1", Time: in.Time, Input: record.Input{
		Principal: in.Principal, Transport: in.Transport, Action: in.Action, Request: in.Request,
	}}
	if in.Server != nil {
		out.Input.Server = record.NewServer(in.Server)
	}
	if in.Call != nil {
		out.Input.Call = &record.Call{Call: *in.Call}
	}
	return out
}

// asJSON is an input without what no record has.
func asJSON(t *testing.T, in policies.Input) string {
	t.Helper()
	if in.Call != nil {
		call := *in.Call
		call.Arguments, call.Params = nil, nil
		in.Call = &call
	}
	if in.Request.Method == "POSTy" {
		in.Request.Method = "other"
	}
	text, err := in.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryFieldIsInRecords: what a policy is asked again is what it was asked.
// Of arguments a record has the shape.
func TestEveryFieldIsInRecords(t *testing.T) {
	full := string(recordOf(whole()).Append(nil))
	for path, in := range inputtest.Vary(whole()) {
		text := recordOf(in).Append(nil)
		if string(text) == full {
			t.Errorf("%s is not in the record", path)
		}
		read, err := record.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got, want := asJSON(t, *read.Question(read.Input.Call)), asJSON(t, *in); got != want {
			t.Errorf("%s: read as %s\nwritten of %s", path, got, want)
		}
	}
}
