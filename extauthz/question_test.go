package extauthz

import (
	"context"
	"encoding/base64"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

func drawText(t *rapid.T, name string) string { return rapid.StringN(0, 40, 200).Draw(t, name) }

func drawTexts(t *rapid.T, name string) []string {
	out := rapid.SliceOfN(rapid.StringN(0, 20, 60), 0, 4).Draw(t, name)
	if len(out) == 0 {
		return nil
	}
	return out
}

func drawValue(t *rapid.T, name string) jsontext.Value {
	return rapid.SampledFrom([]jsontext.Value{nil, jsontext.Value(`{}`), jsontext.Value(`{"a":[1,"é"]}`), jsontext.Value(`7`)}).Draw(t, name)
}

func drawCall(t *rapid.T, version string) policies.Call {
	c := policies.Call{
		Method: drawText(t, "method"), Tool: drawText(t, "tool"), Prompt: drawText(t, "prompt"), Resource: drawText(t, "resource"),
		Template: drawText(t, "template"), Task: drawText(t, "task"), Level: drawText(t, "level"), Subscriptions: drawTexts(t, "subscriptions"),
		Arguments: drawValue(t, "arguments"), Params: drawValue(t, "params"), ProtocolVersion: version,
		Notification: rapid.Bool().Draw(t, "notification"), Batch: rapid.Bool().Draw(t, "batch"), BatchIndex: rapid.IntRange(0, 31).Draw(t, "index"),
	}
	if rapid.Bool().Draw(t, "ref") {
		c.Ref = &policies.Ref{Type: drawText(t, "type"), Name: drawText(t, "name")}
	}
	return c
}

func drawQuestion(t *rapid.T) *question {
	q := &question{policy: drawText(t, "policy"), seen: rapid.Uint64().Draw(t, "seen"), version: drawText(t, "version"), withheld: withheld(rapid.IntRange(0, 2).Draw(t, "withheld"))}
	q.asked = policies.Input{
		Transport: rapid.SampledFrom([]string{transportMCP, transportRPC}).Draw(t, "transport"),
		Action:    rapid.SampledFrom([]policies.Action{policies.ActionCall, policies.ActionOpenStream}).Draw(t, "action"),
		Request:   policies.Request{Method: drawText(t, "http"), Path: drawText(t, "path"), Host: drawText(t, "host"), Source: drawText(t, "source")},
		Principal: policies.Principal{
			Principal: identity.Principal{
				Kind: identity.Kind(drawText(t, "kind")), Issuer: drawText(t, "issuer"), Subject: drawText(t, "subject"),
				Client: drawText(t, "client"), Name: drawText(t, "name"), Server: identity.ServerID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "server")),
			},
			Scopes: drawTexts(t, "scopes"), Narrowed: rapid.Bool().Draw(t, "narrowed"), User: drawText(t, "user"), Claims: drawValue(t, "claims"),
		},
	}
	for _, name := range drawTexts(t, "headers") {
		q.asked.Request.Headers = append(q.asked.Request.Headers, policies.Header{Name: name, Value: drawText(t, "value")})
	}
	if rapid.Bool().Draw(t, "certificate") {
		q.asked.Principal.Certificate = &policies.Certificate{
			Fingerprint: drawText(t, "fingerprint"), Serial: drawText(t, "serial"), Issuer: drawText(t, "issuer"), URI: drawText(t, "uri"),
			NotAfter: rapid.SampledFrom([]time.Time{{}, time.Unix(1_795_000_000, 0).UTC()}).Draw(t, "end"),
		}
	}
	if q.withheld == withheldCalls {
		return q
	}
	for range rapid.IntRange(0, 3).Draw(t, "calls") {
		q.calls = append(q.calls, drawCall(t, q.version))
	}
	return q
}

func TestQuestionComesBackAsItWasAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawQuestion(t)
		text := base64.RawURLEncoding.EncodeToString(want.append(nil))
		got, err := parseQuestion(text)
		if err != nil {
			t.Fatal(err)
		}
		if want.withheld == withheldArguments {
			for i := range want.calls {
				want.calls[i].Arguments, want.calls[i].Params = nil, nil
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read %+v\nasked %+v", got, want)
		}
		if cut, err := parseQuestion(text[:rapid.IntRange(0, len(text)-1).Draw(t, "cut")]); err == nil {
			t.Errorf("a part of it is read as %+v", cut)
		}
	})
}

// standard is compiled once.
var standard = sync.OnceValue(func() *policies.Policy {
	policy, err := policies.Compile(context.Background(), policies.Standard())
	if err != nil {
		panic(err)
	}
	return policy
})

// askedOf is a decision about a POST on /mcp.
func askedOf(calls ...policies.Call) *decision {
	d := &decision{srv: &server{seenAs: 7}, snap: &Snapshot{policy: standard()}, req: &request{method: "POST", transport: jsonrpc.MCP}, input: policies.Input{Action: policies.ActionCall, Transport: transportMCP}, calls: calls}
	for range calls {
		d.call.messages = append(d.call.messages, jsonrpc.Message{Kind: jsonrpc.Request, Method: "tools/call"})
	}
	return d
}

func TestQuestionWithholdsWhatIsTooLong(t *testing.T) {
	long := func(n int) jsontext.Value { return jsontext.Value(`"` + strings.Repeat("x", n-2) + `"`) }
	for _, tt := range []struct {
		name  string
		calls []policies.Call
		want  withheld
		left  int // calls
	}{
		{"arguments as long as they may be", []policies.Call{{Method: "m", Arguments: long(argumentsMost)}}, withheldNothing, 1},
		{"one byte longer", []policies.Call{{Method: "m", Arguments: long(argumentsMost + 1)}}, withheldArguments, 1},
		{"together", []policies.Call{{Method: "m", Arguments: long(argumentsMost / 2)}, {Method: "m", Params: long(argumentsMost/2 + 1)}}, withheldArguments, 2},
		{"small arguments beside a long name", []policies.Call{{Method: "m", Tool: strings.Repeat("t", 5000), Arguments: long(2000)}}, withheldArguments, 1},
		{"a name longer than all", []policies.Call{{Method: "m", Tool: strings.Repeat("t", questionMost)}}, withheldCalls, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := askedOf(tt.calls...).question()
			if err != nil {
				t.Fatal(err)
			}
			q, err := parseQuestion(text)
			if err != nil {
				t.Fatal(err)
			}
			if q.withheld != tt.want || len(q.calls) != tt.left || len(text) > questionMost {
				t.Errorf("withheld %d with %d calls in %d bytes, want %d and %d", q.withheld, len(q.calls), len(text), tt.want, tt.left)
			}
			if q.withheld != withheldNothing && q.arguments() > 0 {
				t.Error("arguments were carried all the same")
			}
		})
	}
	d := askedOf(policies.Call{Method: "m"})
	d.input.Principal.Scopes = []string{strings.Repeat("s", questionMost)}
	if text, err := d.question(); err == nil {
		t.Errorf("a question of %d bytes was written", len(text))
	}
}

// There is one text for a question.
func TestQuestionIsWrittenInOneWay(t *testing.T) {
	text, err := askedOf(policies.Call{Method: "m"}).question()
	if err != nil {
		t.Fatal(err)
	}
	in, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || in[len(in)-1] != 0 {
		t.Fatalf("it ends with %v, not with the length of no params", in)
	}
	flagged := append([]byte{}, in...)
	flagged[1] |= questionWithheld | questionUncalled
	for name, other := range map[string][]byte{
		"a number in two bytes":  append(append([]byte{}, in[:len(in)-1]...), 0x80, 0),
		"something behind it":    append(append([]byte{}, in...), 0),
		"two flags of which one": flagged,
		"another version":        append([]byte{2}, in[1:]...),
	} {
		if q, err := parseQuestion(base64.RawURLEncoding.EncodeToString(other)); err == nil {
			t.Errorf("%s is read as %+v", name, q)
		}
	}
	if _, err := parseQuestion(text[:8] + "\n" + text[8:]); err == nil {
		t.Error("a line break is read over")
	}
}

// FuzzQuestion holds that nothing is read but what the writer writes.
func FuzzQuestion(f *testing.F) {
	text, err := askedOf(policies.Call{Method: "tools/call", Tool: "echo", Arguments: jsontext.Value(`{}`), Ref: &policies.Ref{}}).question()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", text, text + "A", text + "\n", "AQAB" + text, strings.ToUpper(text)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseQuestion(text)
		if err != nil {
			return
		}
		if again := base64.RawURLEncoding.EncodeToString(q.append(nil)); again != text {
			t.Errorf("%q is read, and written as %q", text, again)
		}
		if q.withheld == withheldCalls && q.inputs(&server{}, time.Time{}) != nil {
			t.Error("calls that were withheld are asked about")
		}
	})
}
