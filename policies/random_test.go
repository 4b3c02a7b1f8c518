package policies

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// word is one of few, so that inputs often agree in a part and differ in
// another.
var word = rapid.SampledFrom([]string{"", "a", "b", "ab", "1"})

var (
	anyArguments = rapid.SampledFrom([]jsontext.Value{nil, nil, []byte(`{}`), []byte(`{"path":"a"}`), []byte(`{"path":"b"}`), []byte(`["a"]`), []byte(`null`)})
	anyTime      = rapid.SampledFrom([]time.Time{{}, time.Unix(0, 5), time.Unix(0, 6), time.Unix(1_800_000_000, 0)})
	fewServers   = []*Server{
		nil,
		{Name: "a"},
		{Name: "a", Labels: map[string]string{"team": "a"}},
		{Name: "b", Grants: []byte(`[{"principal":{"id":"a"},"tools":["a*"]}]`)},
		{ID: identity.ServerID{1}, Name: "b", Data: []byte(`{"names":["a","b"]}`)},
	}
	someServer = rapid.SampledFrom(fewServers)
)

func anyHeaders(t *rapid.T) []Header {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Header {
		return Header{Name: rapid.SampledFrom([]string{"x-a", "x-b"}).Draw(t, "header"), Value: word.Draw(t, "value")}
	}), 0, 3).Draw(t, "headers")
}

func anyPrincipal(t *rapid.T) Principal {
	p := Principal{
		Principal: identity.Principal{
			Kind: identity.Kind(word.Draw(t, "kind")), Subject: word.Draw(t, "id"), Name: word.Draw(t, "name"),
			Client: word.Draw(t, "client"), Issuer: word.Draw(t, "issuer"),
		},
		User:   word.Draw(t, "user"),
		Claims: rapid.SampledFrom([]jsontext.Value{nil, []byte(`{"sub":"a"}`), []byte(`{"sub":"b"}`)}).Draw(t, "claims"),
	}
	p.Principal.Server[0] = rapid.ByteMax(1).Draw(t, "principal's server")
	if p.Narrowed = rapid.Bool().Draw(t, "narrowed"); p.Narrowed {
		p.Scopes = rapid.SliceOfN(word, 0, 3).Draw(t, "scopes")
	}
	if rapid.Bool().Draw(t, "has a certificate") {
		p.Certificate = &Certificate{Fingerprint: word.Draw(t, "fingerprint"), URI: word.Draw(t, "uri"), NotAfter: anyTime.Draw(t, "not after")}
	}
	return p
}

func anyCall(t *rapid.T) *Call {
	if rapid.Bool().Draw(t, "is not a call") {
		return nil
	}
	c := &Call{
		Method: word.Draw(t, "method"), Tool: word.Draw(t, "tool"), Prompt: word.Draw(t, "prompt"), Resource: word.Draw(t, "resource"),
		Template: word.Draw(t, "template"), Task: word.Draw(t, "task"), Level: word.Draw(t, "level"),
		Subscriptions: rapid.SliceOfN(word, 0, 2).Draw(t, "subscriptions"),
		Arguments:     anyArguments.Draw(t, "arguments"), Params: anyArguments.Draw(t, "params"), ProtocolVersion: word.Draw(t, "version"),
		Notification: rapid.Bool().Draw(t, "notification"), Batch: rapid.Bool().Draw(t, "batch"), BatchIndex: rapid.IntRange(0, 2).Draw(t, "index"),
	}
	if rapid.Bool().Draw(t, "has a ref") {
		c.Ref = &Ref{Type: word.Draw(t, "ref type"), Name: word.Draw(t, "ref name")}
	}
	return c
}

func anyInput(t *rapid.T) *Input {
	return &Input{
		Principal: anyPrincipal(t), Server: someServer.Draw(t, "server"), Transport: word.Draw(t, "transport"),
		Action: Action(word.Draw(t, "action")), Call: anyCall(t), Time: anyTime.Draw(t, "time"),
		Request: Request{
			Method: word.Draw(t, "verb"), Path: word.Draw(t, "path"), Host: word.Draw(t, "host"), Source: word.Draw(t, "source"),
			Headers: anyHeaders(t),
		},
	}
}

// conditions read the input in every way that Rego has. W is a word, P the path
// of a text in the input.
var conditions = []string{
	`P == W`, `P != W`, `not P`, `not P == W`,
	`whole := input.call; whole.tool == W`,
	`renamed.method == W`,
	`some _, v in input.call; v == W`,
	`some k, _ in input; k == "time"`,
	`some k; input[k].tool == W`,
	`some k; input.principal[k] == W`,
	`walk(input, [_, v]); v == W`,
	`walk(input.principal, [_, v]); v == W`,
	`takes(input.call, W)`, `takes_all(input, W)`, `takes_text(P, W)`,
	`some name in data.names; name == P`,
	`data.names[_] == P`,
	`data.nested[P]`,
	`count([1 | some v in input.principal.scopes; v == W]) > 0`,
	`count({v | some v in input.call.subscriptions}) > 1`,
	`count({k: v | some k, v in input.request}) > 3`,
	`takes_text(W, W) with input.call.tool as W`,
	`tool_is_a with input.call.tool as W`,
	`tool_is_a with input as {"principal": {"kind": "a", "id": "a"}, "action": "a", "call": {"method": "a", "tool": W}}`,
	`tool_is_a with data.names as [P]`,
	`tool_is_a`,
	`input.request.headers["x-a"][_] == W`,
	`count(input.request.headers) > 1`,
	`input.time > 5`, `not input.time`,
	`object.get(input, ["call", "tool"], "") == W`,
	`object.get(input.call, "tool", "") == W`,
	`contains(json.marshal(input), W)`, `contains(json.marshal(input.request), W)`,
	`input.call.arguments.path == W`, `input.call.params[_] == W`, `input.call.arguments`,
	`{"x": input.principal}.x.kind == W`,
	`[input.call.tool, input.call.prompt][_] == W`,
	`every scope in input.principal.scopes { scope != W }`,
	`input.server.labels.team == W`, `input.server.name == W`, `some _, v in input.server; v == W`,
	`input.server.grants[_].principal.id == P`,
	`input.principal.certificate.uri == W`, `input.principal.certificate.not_after > 5`,
	`input.principal.claims.sub == W`,
	`input.call.ref.name == W`, `input.call.batch_index > 0`, `input.call.notification`,
	`concat("", [P, W]) == "ab"`, `sprintf("%v", [input.call]) != W`,
	`$"{P}" == W`,
	`x := P; y := x; y == W`,
	`input == data.nothing`, `is_object(input)`,
}

var textPaths = []string{
	"input.principal.kind", "input.principal.id", "input.principal.name", "input.principal.client", "input.principal.user",
	"input.principal.issuer", "input.principal.server", "input.transport", "input.action", "input.call.method", "input.call.tool",
	"input.call.prompt", "input.call.resource", "input.call.resource_template", "input.call.task", "input.call.level",
	"input.call.protocol_version", "input.request.method", "input.request.path", "input.request.host", "input.request.source",
}

const policyHead = `package policy

import input.call as renamed

tool_is_a if input.call.tool == "a"

uses_the_import if renamed.method == "a"

takes(call, text) if call.prompt == text

takes_all(everything, text) if everything.request.host == text

takes_text(one, other) if startswith(one, other)

`

// filled is a condition with its blanks drawn.
func filled(t *rapid.T, condition string) string {
	for strings.Contains(condition, "P") {
		condition = strings.Replace(condition, "P", rapid.SampledFrom(textPaths).Draw(t, "path"), 1)
	}
	for strings.Contains(condition, "W") {
		condition = strings.Replace(condition, "W", fmt.Sprintf("%q", word.Draw(t, "word")), 1)
	}
	return condition
}

func anyBody(t *rapid.T) string {
	body := "{"
	for i := range rapid.IntRange(1, 3).Draw(t, "conditions") {
		condition := filled(t, rapid.SampledFrom(conditions).Draw(t, "condition"))
		body += fmt.Sprintf("\n\tcount([1 | %s]) %s", condition, rapid.SampledFrom([]string{"> 0", "== 0", "== " + fmt.Sprint(i)}).Draw(t, "times"))
	}
	return body + "\n}\n"
}

// anyPolicy is a bundle of random rules over random data.
func anyPolicy(t *rapid.T) Bundle {
	source := policyHead
	for _, rule := range []string{
		"allow if", "allow if", `deny contains {"code": "a", "message": input.call.tool} if`,
		`deny contains {"code": "b", "message": "b"} if`, "hide if", `scopes_needed contains input.transport if`,
		`headers["x-arbiter-policy-a"] := input.principal.id if`, `limits contains {"by": ["principal"], "rate": 1, "burst": 1} if`,
		`allow := "not a boolean" if`,
	} {
		if rapid.IntRange(0, 9).Draw(t, "rule "+rule) < 5 {
			source += rule + " " + anyBody(t) + "\n"
		}
	}
	if rapid.Bool().Draw(t, "has a default") {
		source += "default allow := false\n"
	}
	names := rapid.SliceOfN(rapid.SampledFrom([]string{`"a"`, `"b"`, `"ab"`}), 0, 2).Draw(t, "names")
	data := fmt.Sprintf(`{"names": [%s], "nested": {"a": %v, "b": true}}`, strings.Join(names, ","), rapid.Bool().Draw(t, "nested a"))
	return Bundle{Files: map[string][]byte{"policy.rego": []byte(source), "data.json": []byte(data)}}
}
