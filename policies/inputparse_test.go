package policies

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

const minimal = `{"principal":{"kind":"access_token","id":"t1"},"action":"call","call":{"method":"tools/call"}}`

func TestParseInput(t *testing.T) {
	in, err := ParseInput([]byte(`{
		"principal": {"kind": "access_token", "id": "t1", "scopes": [], "claims": {"empty": "", "list": []},
			"server": "0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081"},
		"server": {"id": "0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081", "name": "demo", "labels": {"team": ""},
			"grants": [{"principal": {"user": "u"}, "tools": ["*"]}], "data": {"x": [1, 1.0, 1e300]}},
		"transport": "mcp", "action": "call",
		"call": {"method": "tools/call", "tool": "echo", "arguments": null, "batch_index": 0},
		"request": {"method": "POST", "headers": {"x-team": ["a", ""]}},
		"time": 1700000000000000001
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if !in.Principal.Narrowed || len(in.Principal.Scopes) != 0 || in.Server.Name != "demo" || string(in.Server.Data) != `{"x": [1, 1.0, 1e300]}` ||
		string(in.Call.Arguments) != "null" || !in.Call.Batch || in.Call.BatchIndex != 0 || len(in.Request.Headers) != 2 || in.Time.UnixNano() != 1700000000000000001 {
		t.Errorf("read %+v", in)
	}
	if in, err = ParseInput([]byte(minimal)); err != nil || in.Principal.Narrowed || in.Server != nil || !in.Time.IsZero() {
		t.Errorf("read %+v, %v", in, err)
	}
}

func TestParseInputRejects(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", "not JSON"},
		{"no JSON", "{principal", "not JSON"},
		{"two values", minimal + "{}", "not JSON"},
		{"a key twice", strings.Replace(minimal, `"id":`, `"id":"t0","id":`, 1), "duplicate"},
		{"a list", "[]", "JSON object"},
		{"no principal", `{"action":"call"}`, "principal"},
		{"no action", `{"principal":{"kind":"k","id":"t"}}`, "action"},
		{"an unknown member", strings.Replace(minimal, `"action"`, `"actoin"`, 1), "actoin"},
		{"an unknown member inside", strings.Replace(minimal, `"method"`, `"Tool":"x","method"`, 1), "input.call: Additional property Tool"},
		{"a wrong type", strings.Replace(minimal, `"tools/call"`, `1`, 1), "input.call.method"},
		{"null", strings.Replace(minimal, `"tools/call"`, `null`, 1), "input.call.method"},
		{"an unknown action", strings.Replace(minimal, `"action":"call"`, `"action":"Call"`, 1), "input.action"},
		{"an unknown transport", strings.Replace(minimal, `"action"`, `"transport":"sse","action"`, 1), "input.transport"},
		{"a server that is no UUID", strings.Replace(minimal, `"action"`, `"server":{"id":"s1","name":"x"},"action"`, 1), "input.server.id: not a UUID"},
		{"a principal's server that is none", strings.Replace(minimal, `"id":"t1"`, `"id":"t1","server":"s1"`, 1), "input.principal.server: not a UUID"},
		{"a server without a name", strings.Replace(minimal, `"action"`, `"server":{"id":"0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081"},"action"`, 1), "name"},
		{"an empty text", strings.Replace(minimal, `"method"`, `"tool":"","method"`, 1), "input.call.tool: this is empty"},
		{"an empty list", strings.Replace(minimal, `"method"`, `"subscriptions":[],"method"`, 1), "input.call.subscriptions: this is empty"},
		{"false", strings.Replace(minimal, `"method"`, `"notification":false,"method"`, 1), "input.call.notification: this is empty"},
		{"grants that are none", strings.Replace(minimal, `"action"`, `"server":{"id":"0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081","name":"x","grants":[{"tool":"a"}]},"action"`, 1), "input.server.grants.0"},
		{"a time that is no integer", strings.Replace(minimal, `"action"`, `"time":1.5,"action"`, 1), "input.time"},
		{"a time out of range", strings.Replace(minimal, `"action"`, `"time":99999999999999999999,"action"`, 1), "time"},
		{"a header that is no list", strings.Replace(minimal, `"action"`, `"request":{"headers":{"x":"a"}},"action"`, 1), "input.request.headers.x"},
		{"half a surrogate", strings.Replace(minimal, `"t1"`, `"\ud800"`, 1), "not JSON"},
		{"bytes that are no text", strings.Replace(minimal, `"t1"`, "\"\xff\"", 1), "not JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if in, err := ParseInput([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("read %+v, %v; want %q", in, err, test.want)
			}
		})
	}
}

func drawInput(r *rapid.T) *Input {
	word := rapid.StringMatching(`[a-zé<&"]{0,3}`)
	value := rapid.SampledFrom([]string{"", "null", "{}", `{"a":[1,1.0,-0,1e300,true,null,""]}`, `[]`, `"x"`, `12345678901234567890`})
	object := rapid.SampledFrom([]string{"", "{}", `{"a":{"b":[]},"é":""}`})
	maybeTime := rapid.Custom(func(r *rapid.T) time.Time {
		if rapid.Bool().Draw(r, "no time") {
			return time.Time{}
		}
		return time.Unix(0, rapid.Int64().Draw(r, "time"))
	})
	in := &Input{
		Action:    rapid.SampledFrom([]Action{ActionCall, ActionOpenStream, ActionListItem, ActionBootstrap, ActionRotate}).Draw(r, "action"),
		Transport: rapid.SampledFrom([]string{"", "mcp", "rpc"}).Draw(r, "transport"), Time: maybeTime.Draw(r, "time"),
		Request: Request{Method: word.Draw(r, "method"), Path: word.Draw(r, "path"), Host: word.Draw(r, "host"), Source: word.Draw(r, "source")},
	}
	in.Principal = Principal{
		Principal: identity.Principal{Kind: "k", Subject: "t", Issuer: word.Draw(r, "issuer"), Client: word.Draw(r, "client"), Name: word.Draw(r, "name")},
		User:      word.Draw(r, "user"), Claims: jsontext.Value(object.Draw(r, "claims")), Narrowed: rapid.Bool().Draw(r, "narrowed"),
	}
	if in.Principal.Narrowed {
		in.Principal.Scopes = rapid.SliceOf(word).Draw(r, "scopes")
	}
	if rapid.Bool().Draw(r, "certificate") {
		in.Principal.Certificate = &Certificate{Fingerprint: word.Draw(r, "fingerprint"), Serial: "0a", URI: word.Draw(r, "uri"), NotAfter: maybeTime.Draw(r, "not after")}
	}
	for range rapid.IntRange(0, 3).Draw(r, "headers") {
		in.Request.Headers = append(in.Request.Headers, Header{Name: rapid.SampledFrom([]string{"x-a", "x-b"}).Draw(r, "header"), Value: word.Draw(r, "value")})
	}
	if rapid.Bool().Draw(r, "server") {
		in.Principal.Principal.Server = identity.ServerID{1}
		in.Server = &Server{
			ID: identity.ServerID{1}, Name: "demo", Labels: rapid.MapOf(word, word).Draw(r, "labels"), Data: jsontext.Value(object.Draw(r, "data")),
			Grants: jsontext.Value(rapid.SampledFrom([]string{"", "[]", `[{"principal":{},"tools":["*",""]}]`}).Draw(r, "grants")),
		}
	}
	if rapid.Bool().Draw(r, "call") {
		in.Call = &Call{
			Method: "m", Tool: word.Draw(r, "tool"), Prompt: word.Draw(r, "prompt"), Resource: word.Draw(r, "resource"), Template: word.Draw(r, "template"),
			Task: word.Draw(r, "task"), Level: word.Draw(r, "level"), Arguments: jsontext.Value(value.Draw(r, "arguments")), Params: jsontext.Value(value.Draw(r, "params")),
			ProtocolVersion: word.Draw(r, "version"), Notification: rapid.Bool().Draw(r, "notification"),
			Subscriptions: rapid.SampledFrom([][]string{nil, {"a"}, {"a", "b"}}).Draw(r, "subscriptions"), Batch: rapid.Bool().Draw(r, "batch"),
		}
		if in.Call.Batch {
			in.Call.BatchIndex = rapid.IntRange(0, 31).Draw(r, "index")
		}
		if rapid.Bool().Draw(r, "ref") {
			in.Call.Ref = &Ref{Type: word.Draw(r, "type"), Name: "n"}
		}
	}
	return in
}

// What is written is what a policy saw, and what is read is it again.
func TestInputRoundTrip(t *testing.T) {
	all := &Reads{parts: everyPart}
	rapid.Check(t, func(r *rapid.T) {
		in := drawInput(r)
		want, err := in.term(all)
		if err != nil {
			r.Fatal(err)
		}
		text, err := in.AppendJSON([]byte("x"))
		if err != nil || text[0] != 'x' {
			r.Fatal(err)
		}
		if written, err := termOf(text[1:], 0); err != nil || !written.Equal(want) {
			r.Fatalf("wrote %s, %v; want %v", text[1:], err, want)
		}
		read, err := ParseInput(text[1:])
		if err != nil {
			r.Fatalf("%s: %v", text[1:], err)
		}
		if got, err := read.term(all); err != nil || !got.Equal(want) {
			r.Fatalf("read %v, %v; want %v", got, err, want)
		}
	})
}

func TestAppendJSONRejectsWhatIsNotJSON(t *testing.T) {
	in := Input{Action: ActionCall, Call: &Call{Method: "m", Arguments: jsontext.Value(`{"a":`)}}
	if out, err := in.AppendJSON([]byte("x")); err == nil || string(out) != "x" {
		t.Errorf("wrote %s, %v", out, err)
	}
}

func FuzzParseInput(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(`{"principal":{"kind":"k","id":"t","scopes":[]},"action":"open_stream","request":{"headers":{}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := ParseInput(text)
		if err != nil {
			return
		}
		if _, err := in.term(&Reads{parts: everyPart}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		again, err := in.AppendJSON(nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if _, err := ParseInput(again); err != nil {
			t.Errorf("%s became %s: %v", text, again, err)
		}
	})
}
