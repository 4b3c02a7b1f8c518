package record_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

var nasty = rapid.OneOf(
	rapid.Just(""), rapid.StringN(0, 30, -1),
	rapid.SampledFrom([]string{`a"b\c`, "a\nb\r\x00\x7f", "</script><!--", "\u2028\u2029", "Zoë", "😀", "${jndi:x}", "\xff\xfe", "a\xf0\x9f"}),
)

// endless texts are the worst that a caller could get into a record.
var endless = rapid.OneOf(nasty, rapid.SampledFrom([]string{
	strings.Repeat("\x00", 5000), strings.Repeat(`"`, 300), strings.Repeat("ë", 200), strings.Repeat("x", 256), strings.Repeat("😀", 64) + "x", strings.Repeat("\xff", 400),
}))

func calls(texts *rapid.Generator[string]) *rapid.Generator[record.Call] {
	return rapid.Custom(func(t *rapid.T) record.Call {
		draw := func(name string) string { return texts.Draw(t, name) }
		c := record.Call{Upkeep: rapid.Bool().Draw(t, "upkeep")}
		c.Method, c.Tool, c.Prompt, c.Resource = draw("method"), draw("tool"), draw("prompt"), draw("resource")
		c.Template, c.Task, c.Level, c.ProtocolVersion = draw("template"), draw("task"), draw("level"), draw("version")
		c.Notification = rapid.Bool().Draw(t, "notification")
		c.Subscriptions = some(t, texts, 40)
		if rapid.Bool().Draw(t, "has ref") {
			c.Ref = &policies.Ref{Type: draw("ref type"), Name: draw("ref name")}
		}
		if c.Batch = rapid.Bool().Draw(t, "batch"); c.Batch {
			c.BatchIndex = rapid.IntRange(0, 31).Draw(t, "index")
		}
		return c
	})
}

// some is nil rather than empty, as is what is read back.
func some(t *rapid.T, texts *rapid.Generator[string], most int) []string {
	list := rapid.SliceOfN(texts, 0, most).Draw(t, "list")
	if len(list) == 0 {
		return nil
	}
	return list
}

func records(texts *rapid.Generator[string]) *rapid.Generator[*record.Record] {
	return rapid.Custom(func(t *rapid.T) *record.Record {
		draw := func(name string) string { return texts.Draw(t, name) }
		r := &record.Record{
			ID: "r" + draw("id"), Time: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC(),
			Revision: draw("revision"), CheckTime: time.Duration(rapid.Int64().Draw(t, "check")), PolicyTime: time.Duration(rapid.Int64().Draw(t, "policy")),
			SettingsRevision: rapid.Int64().Draw(t, "settings"), Replica: draw("replica"), Peer: draw("peer"), Outcome: draw("outcome"), Reason: draw("reason"),
			Detail: draw("detail"), Status: rapid.IntRange(0, 599).Draw(t, "status"), Credential: draw("credential"),
			Session: rapid.Bool().Draw(t, "session"), Upstream: draw("upstream"),
		}
		in := &r.Input
		in.Transport, in.Action = draw("transport"), policies.Action(draw("action"))
		in.Request = policies.Request{Method: "POST", Path: draw("path"), Host: draw("host"), Source: draw("source")}
		for _, value := range some(t, texts, 30) {
			in.Request.Headers = append(in.Request.Headers, policies.Header{Name: "x-team", Value: value})
		}
		if rapid.Bool().Draw(t, "has principal") {
			in.Principal = principal(t, draw)
			in.Principal.Scopes = append([]string{}, some(t, texts, 40)...)
		}
		if rapid.Bool().Draw(t, "has server") {
			in.Server = record.NewServer(server(t, draw))
		}
		switch rapid.IntRange(0, 2).Draw(t, "messages") {
		case 1:
			c := calls(texts).Draw(t, "call")
			in.Call = &c
		case 2:
			in.Calls = rapid.SliceOfN(calls(texts), 1, 32).Draw(t, "calls")
		}
		if rapid.Bool().Draw(t, "has result") {
			r.Result = result(t, draw, texts)
		}
		return r
	})
}

func principal(t *rapid.T, draw func(string) string) policies.Principal {
	p := policies.Principal{Narrowed: true, User: draw("user")}
	p.Principal = identity.Principal{
		Kind: identity.Kind("k" + draw("kind")), Issuer: draw("issuer"), Subject: draw("subject"), Client: draw("client"), Name: draw("name"),
		Server: identity.NewServerID(),
	}
	if rapid.Bool().Draw(t, "has claims") {
		p.Claims = []byte(`{"a":[1,null,"x"]}`)
	}
	if rapid.Bool().Draw(t, "has certificate") {
		p.Certificate = &policies.Certificate{
			Fingerprint: draw("fingerprint"), Serial: draw("serial"), Issuer: draw("ca"), URI: draw("uri"), NotAfter: time.Unix(7, 9).UTC(),
		}
	}
	return p
}

func server(t *rapid.T, draw func(string) string) *policies.Server {
	s := &policies.Server{ID: identity.NewServerID(), Name: draw("server")}
	for _, name := range []string{"team", "env"} {
		if value := draw(name); value != "" {
			s.Labels = map[string]string{name: value}
		}
	}
	if rapid.Bool().Draw(t, "has grants") {
		s.Grants = []byte(`[{"principal":{},"tools":["*"]}]`)
	}
	if rapid.Bool().Draw(t, "has data") {
		s.Data = []byte(`{"a":1}`)
	}
	return s
}

func result(t *rapid.T, draw func(string) string, texts *rapid.Generator[string]) *record.Result {
	out := &record.Result{}
	out.Allow, out.Hide = rapid.Bool().Draw(t, "allow"), rapid.Bool().Draw(t, "hide")
	for range rapid.IntRange(0, 32).Draw(t, "denials") {
		out.Denials = append(out.Denials, policies.Denial{Code: draw("code"), Text: draw("text")})
	}
	out.Scopes = some(t, texts, 32)
	for _, name := range some(t, texts, 16) {
		out.Headers = append(out.Headers, policies.Header{Name: name})
	}
	if rapid.Bool().Draw(t, "has limits") {
		out.Limits = []policies.Limit{{By: []string{"principal", "tool"}, Rate: 0.25, Burst: 5}}
	}
	if out.Batch = rapid.Bool().Draw(t, "of a batch"); out.Batch {
		out.Index = rapid.IntRange(0, 31).Draw(t, "index")
	}
	return out
}

// What is written is read again as it was; what was shortened says so.
func TestRecordsAreReadAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := records(rapid.SampledFrom([]string{"", "a", `a"b\c`, "a\nb\x00", "<&>", "\u2028", "Zoë 😀"})).Draw(t, "record")
		text := want.Append(nil)
		got, err := record.Parse(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if want.Shortened { // long lists
			if !got.Shortened {
				t.Fatal("nothing says that it was shortened")
			}
			return
		}
		if got.Input.Server != nil { // made from the same server
			again := record.NewServer(got.Input.Server.Seen)
			if !reflect.DeepEqual(again, want.Input.Server) {
				t.Fatalf("server %+v\nwant %+v", again, want.Input.Server)
			}
			got.Input.Server, want.Input.Server = nil, nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("read %+v\nwant %+v\nof %s", got, want, text)
		}
		if head, err := record.ParseHead(text); err != nil || head.ID != want.ID || !head.Time.Equal(want.Time) || head.Outcome != want.Outcome || head.Credential != want.Credential {
			t.Fatalf("head %+v, %v", head, err)
		}
	})
}

// Whatever is in it, a record is one line of valid JSON in UTF-8, not too long.
func TestRecordsAreBoundedLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := records(endless).Draw(t, "record")
		text := r.Append([]byte("before"))[len("before"):]
		var into map[string]any
		if err := json.Unmarshal(text, &into); err != nil || !utf8.Valid(text) || len(text) > record.Most || strings.ContainsAny(string(text), "\n\r\x00") {
			t.Fatalf("%d bytes, %v: %s", len(text), err, text)
		}
		if into["outcome"] == nil || into["decision_id"] == nil || (r.Result != nil) != (into["result"] != nil) {
			t.Fatalf("something is gone: %s", text)
		}
		if again, err := record.Parse(text); err != nil || again.Shortened != r.Shortened {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}

// The longest record there is: every text of control characters, every list full.
func TestTheLongestRecord(t *testing.T) {
	long := strings.Repeat("\x01", 4000)
	many := make([]string, 1000)
	for i := range many {
		many[i] = long
	}
	c := record.Call{}
	c.Method, c.Tool, c.Prompt, c.Resource, c.Template, c.Task, c.Level, c.ProtocolVersion = long, long, long, long, long, long, long, long
	c.Subscriptions, c.Ref = many, &policies.Ref{Type: long, Name: long}
	c.Arguments = []byte(`{` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat(`\u0001`, 100)+`":{"a":[1,2,3]},`, 1000), ",") + `}`)
	r := &record.Record{ID: long, Revision: long, Replica: long, Peer: long, Outcome: long, Reason: long, Detail: long, Credential: long, Upstream: long, Result: &record.Result{}}
	r.Result.Scopes = many
	for range many {
		r.Result.Denials = append(r.Result.Denials, policies.Denial{Code: long, Text: long})
		r.Result.Headers = append(r.Result.Headers, policies.Header{Name: long})
		r.Result.Limits = append(r.Result.Limits, policies.Limit{By: many})
		r.Input.Calls = append(r.Input.Calls, c)
		r.Input.Request.Headers = append(r.Input.Request.Headers, policies.Header{Name: "x", Value: long})
	}
	r.Input.Call = &c
	r.Input.Transport, r.Input.Action = long, policies.Action(long)
	r.Input.Principal = policies.Principal{Narrowed: true, Scopes: many, User: long, Certificate: &policies.Certificate{Fingerprint: long, Serial: long, Issuer: long, URI: long}}
	r.Input.Principal.Principal = identity.Principal{Kind: identity.Kind(long), Issuer: long, Subject: long, Client: long, Name: long}
	r.Input.Principal.Claims = []byte(`["` + strings.Repeat("x", 1<<20) + `"]`)
	r.Input.Request.Method, r.Input.Request.Path, r.Input.Request.Host, r.Input.Request.Source = long, long, long, long
	r.Input.Server = record.NewServer(&policies.Server{Name: long, Grants: []byte(`["` + strings.Repeat("x", 1<<20) + `"]`)})
	text := r.Append(nil)
	if len(text) > record.Most || !json.Valid(text) || !r.Shortened {
		t.Errorf("%d bytes, shortened %t: %s", len(text), r.Shortened, text)
	}
}

// The input of a record is what the schema of policies says, beside the names
// that stand for what is not recorded.
func TestInputIsWhatTheSchemaSays(t *testing.T) {
	var schema jsonschema.Schema
	if err := json.Unmarshal(policies.InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	schema.Schema = "" // every word that it uses means the same in the draft that is known here
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := records(rapid.StringN(1, 10, -1)).Draw(t, "record")
		r.Input.Principal = principal(t, func(name string) string { return name })
		r.Input.Action, r.Input.Calls = policies.ActionCall, nil
		if r.Input.Call != nil {
			r.Input.Call.Arguments, r.Input.Call.Params = []byte(`{"a":1}`), []byte(`[1]`)
			r.Input.Call.Upkeep = false
		}
		var into struct {
			Input map[string]any `json:"input"`
		}
		if err := json.Unmarshal(r.Append(nil), &into); err != nil {
			t.Fatal(err)
		}
		if c, ok := into.Input["call"].(map[string]any); ok {
			if c["arguments_shape"] == nil || c["params_shape"] == nil || c["arguments"] != nil || c["params"] != nil {
				t.Fatalf("call %v", c)
			}
			delete(c, "arguments_shape")
			delete(c, "params_shape")
		}
		if err := resolved.Validate(into.Input); err != nil {
			t.Fatalf("%v: %v", err, into.Input)
		}
	})
}

// Headers with credentials are in no record, whatever the settings say.
func TestCredentialsAreInNoRecord(t *testing.T) {
	r := &record.Record{ID: "r"}
	r.Input.Request.Method = "POST"
	for _, name := range []string{"authorization", "cookie", "proxy-authorization", "mcp-session-id", "last-event-id", "set-cookie", "x-api-key", "api-key", "x-auth-token"} {
		r.Input.Request.Headers = append(r.Input.Request.Headers, policies.Header{Name: name, Value: "canary"})
	}
	r.Input.Request.Headers = append(r.Input.Request.Headers, policies.Header{Name: "x-team", Value: "blue"})
	text := string(r.Append(nil))
	if strings.Contains(text, "canary") || !strings.Contains(text, `"headers":{"x-team":["blue"]}`) || !r.Shortened {
		t.Error(text)
	}
}

func TestLongGrantsAreNamedByTheirDigest(t *testing.T) {
	seen := &policies.Server{ID: identity.NewServerID(), Name: "a", Grants: []byte(`["` + strings.Repeat("x", 3000) + `"]`), Data: []byte(`{}`)}
	r := &record.Record{ID: "r", Input: record.Input{Server: record.NewServer(seen)}}
	got, err := record.Parse(r.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := record.Digest(seen)
	if s := got.Input.Server; s.Digest != want || s.Seen.Grants != nil || s.Seen.Data != nil || got.Shortened {
		t.Errorf("%+v, %+v", s, s.Seen)
	}
	if other := record.Digest(&policies.Server{Grants: seen.Data, Data: seen.Grants}); other == want {
		t.Error("grants and data are taken for each other")
	}
	for name, grants := range map[string]string{"two lines": "[\n1,\t\r\n2]", "no JSON": "[1\n", "twice": `[{"a":1,"a":2}]`} {
		r := &record.Record{ID: "r", Input: record.Input{Server: record.NewServer(&policies.Server{Grants: []byte(grants)})}}
		text := string(r.Append(nil))
		if !json.Valid([]byte(text)) || strings.Contains(text, "\n") || (name == "two lines") != strings.Contains(text, `"grants":[1,2]`) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestWhatIsAsked(t *testing.T) {
	r := &record.Record{ID: "r", Time: time.Unix(5, 6).UTC()}
	for _, method := range []string{"ping", "tools/call", "vendor/x"} {
		c := record.Call{Upkeep: method == "ping"}
		c.Method, c.Batch, c.BatchIndex = method, true, len(r.Input.Calls)
		r.Input.Calls = append(r.Input.Calls, c)
	}
	r.Input.Calls[1].Arguments, r.Input.Calls[2].Params = []byte(`"x"`), []byte(`[]`)
	got, err := record.Parse(r.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	asked := got.Asked()
	if len(asked) != 2 || asked[0].Method != "tools/call" || asked[1].BatchIndex != 2 {
		t.Fatalf("asked %+v", asked)
	}
	if asked[0].ArgumentsShape == nil || asked[0].ParamsShape != nil || asked[1].ArgumentsShape != nil || asked[1].ParamsShape == nil {
		t.Errorf("shapes of %+v", asked)
	}
	if in := got.Question(asked[1]); in.Call.Method != "vendor/x" || !in.Time.Equal(r.Time) {
		t.Errorf("question %+v", in)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		``, `{}`, `[]`, `x`, `{"decision_id":""}`, `{"decision_id":1}`, `{"decision_id":"a","decision_id":"b"}`, `{"request_id":"a"}`,
		`{"decision_id":"a","timestamp":"yesterday"}`, `{"decision_id":"a"}{"decision_id":"b"}`,
	} {
		if _, err := record.ParseHead([]byte(text)); err == nil {
			t.Errorf("a head: %s", text)
		}
		if _, err := record.Parse([]byte(text)); err == nil {
			t.Errorf("a record: %s", text)
		}
	}
	if _, err := record.ParseHead([]byte(`{"decision_id":"` + strings.Repeat("x", record.Most) + `"}`)); err == nil {
		t.Error("one that is too long")
	}
	if _, err := record.Parse([]byte(`{"decision_id":"a","input":{"server":{"id":"x"}}}`)); err == nil {
		t.Error("a server that is none")
	}
}
