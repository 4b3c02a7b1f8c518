package policies

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/open-policy-agent/opa/v1/ast"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

func inputSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal(InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// shown is an input as the schema's validator takes it.
func shown(t interface{ Fatalf(string, ...any) }, in *Input) any {
	term, err := in.term(&Reads{parts: everyPart})
	if err != nil {
		t.Fatalf("term: %v", err)
	}
	out, err := ast.JSON(term.Value)
	if err != nil {
		t.Fatalf("JSON: %v", err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatalf("JSON: %v", err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("JSON: %v", err)
	}
	return out
}

// fullInput has everything that an input can have.
func fullInput() *Input {
	return &Input{
		Principal: Principal{
			Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "s", Name: "n", Client: "c", Issuer: "i", Server: identity.ServerID{1}},
			Scopes:    []string{"a"}, Narrowed: true, User: "u", Claims: []byte(`{"sub":"s"}`),
			Certificate: &Certificate{Fingerprint: "f", Serial: "1", Issuer: "i", URI: "spiffe://x/y", NotAfter: time.Unix(1, 0)},
		},
		Server: &Server{
			ID: identity.ServerID{1}, Name: "n", Labels: map[string]string{"a": "b"},
			Grants: []byte(`[{"principal":{"kind":"k","id":"i","client":"c","user":"u","issuer":"i"},"tools":["a*"]}]`), Data: []byte(`{"x":[1]}`),
		},
		Transport: "mcp", Action: ActionCall, Time: time.Unix(1, 0),
		Call: &Call{
			Method: "m", Tool: "t", Prompt: "p", Resource: "r", Template: "rt", Task: "ta", Level: "l", Ref: &Ref{Type: "ref/prompt", Name: "n"},
			Subscriptions: []string{"s"}, Arguments: []byte(`{}`), Params: []byte(`[1]`), ProtocolVersion: "v", Notification: true, Batch: true, BatchIndex: 1,
		},
		Request: Request{Method: "POST", Path: "/", Host: "h", Source: "::1", Headers: []Header{{"x-a", "1"}, {"x-a", "2"}}},
	}
}

// TestFullInputIsTheWholeSchema: the schema has no member that no input has,
// and the other way round.
func TestFullInputIsTheWholeSchema(t *testing.T) {
	in := shown(t, fullInput())
	if err := inputSchema(t).Validate(in); err != nil {
		t.Error(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	agree(t, "input", schema, in)
}

func agree(t *testing.T, at string, schema map[string]any, value any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	object, _ := value.(map[string]any)
	for name, below := range properties {
		member, there := object[name]
		if !there {
			t.Errorf("no input has %s.%s", at, name)
			continue
		}
		agree(t, at+"."+name, below.(map[string]any), member)
	}
	if items, _ := schema["items"].(map[string]any); items != nil {
		agree(t, at+"[]", items, value.([]any)[0])
	}
}

func TestInputsFitTheSchema(t *testing.T) {
	schema := inputSchema(t)
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		in.Principal.Kind, in.Principal.Subject, in.Action = identity.KindAccessToken, "id", ActionCall
		if in.Server != nil && in.Server.ID.IsZero() {
			in.Server = fewServers[len(fewServers)-1]
		}
		if in.Call != nil {
			in.Call.Method = "m"
		}
		value := shown(t, in)
		if err := schema.Validate(value); err != nil {
			t.Fatalf("%v: %v", value, err)
		}
		if at := empty("input", value); at != "" {
			t.Fatalf("%s is empty instead of absent", at)
		}
	})
}

// empty names a member that is there without saying anything; scopes may be,
// and what callers and operators wrote themselves.
func empty(at string, value any) string {
	for _, theirs := range []string{".scopes", ".arguments", ".params", ".claims", ".data", ".headers.", ".subscriptions", ".labels."} {
		if strings.Contains(at, theirs) {
			return ""
		}
	}
	switch value := value.(type) {
	case nil:
		return at
	case string:
		if value == "" {
			return at
		}
	case []any:
		if len(value) == 0 {
			return at
		}
	case map[string]any:
		for name, member := range value {
			if found := empty(at+"."+name, member); found != "" {
				return found
			}
		}
	}
	return ""
}
