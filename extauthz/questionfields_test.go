package extauthz

import (
	"encoding/base64"
	"reflect"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/inputtest"
)

// TestEveryFieldIsInQuestions: Guard asks what Check asked. The server and the
// time are Guard's own.
func TestEveryFieldIsInQuestions(t *testing.T) {
	type asked struct {
		Principal policies.Principal
		Request   policies.Request
		Call      policies.Call
	}
	full := &asked{
		Principal: policies.Principal{
			Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "s", Name: "n", Client: "c", Issuer: "i", Server: identity.ServerID{1}},
			Scopes:    []string{"a"}, Narrowed: true, User: "u", Claims: []byte(`{"sub":"s"}`),
			Certificate: &policies.Certificate{Fingerprint: "f", Serial: "1", Issuer: "i", URI: "spiffe://x/y", NotAfter: time.Unix(1, 0).UTC()},
		},
		Request: policies.Request{Method: "POST", Path: "/", Host: "h", Source: "::1", Headers: []policies.Header{{Name: "x-a", Value: "1"}}},
		Call: policies.Call{
			Method: "m", Tool: "t", Prompt: "p", Resource: "r", Template: "rt", Task: "ta", Level: "l", Ref: &policies.Ref{Type: "ref/prompt", Name: "n"},
			Subscriptions: []string{"s"}, Arguments: []byte(`{"a":1}`), Params: []byte(`[1]`), ProtocolVersion: "v", Notification: true, Batch: true, BatchIndex: 1,
		},
	}
	// What else an Input has is not carried: a new field has to be looked at here.
	if got := reflect.TypeFor[policies.Input]().NumField(); got != 7 {
		t.Errorf("an input has %d fields", got)
	}
	for path, one := range inputtest.Vary(full) {
		q := &question{version: one.Call.ProtocolVersion, calls: []policies.Call{one.Call}}
		q.asked = policies.Input{Principal: one.Principal, Request: one.Request, Transport: transportMCP, Action: policies.ActionCall}
		read, err := parseQuestion(base64.RawURLEncoding.EncodeToString(q.append(nil)))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got := (asked{read.asked.Principal, read.asked.Request, read.calls[0]}); !reflect.DeepEqual(&got, one) {
			t.Errorf("%s: read as %+v\nasked was %+v", path, got, *one)
		}
	}
}
