package jsonrpc_test

import (
	"bytes"
	"encoding/json" // the careless reader whose reading must be the same
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// carelessMessage is read by encoding/json, which folds the case of keys, keeps
// the last of duplicates and replaces what it cannot decode.
type carelessMessage struct {
	Version json.RawMessage `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  json.RawMessage `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

type carelessParams struct {
	Name            json.RawMessage `json:"name"`
	URI             json.RawMessage `json:"uri"`
	TaskID          json.RawMessage `json:"taskId"`
	Level           json.RawMessage `json:"level"`
	ProtocolVersion json.RawMessage `json:"protocolVersion"`
	Arguments       json.RawMessage `json:"arguments"`
	Ref             json.RawMessage `json:"ref"`
	Meta            json.RawMessage `json:"_meta"`
	Notifications   json.RawMessage `json:"notifications"`
}

type carelessMeta struct {
	Version      json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
}

// FuzzParse expects that what Parse accepts has one reading: the strictest and
// the most careless reader find the same messages, methods, ids and selectors.
func FuzzParse(f *testing.F) {
	for _, seed := range [][]byte{
		call(), []byte(tool(`,"arguments":{"a":{"b":[1,{"c":2}]}}`)), []byte(tool(`,"Name":"x"`)),
		[]byte(request(`"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"}}`)),
		[]byte(request(`"method":"resources/read","params":{"uri":"\u0066ile:///","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)),
		[]byte(request(`"method":"initialize","params":{"protocolVersion":"2025-03-26"}`)),
		[]byte(request(`"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["a"]}}`)),
		[]byte(`[` + request(`"method":"ping"`) + `,{"jsonrpc":"2.0","id":"\ud83d\ude00","result":{}},{"jsonrpc":"2.0","method":"n"}]`),
		[]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ta\u017fk\u017f\",\"param\u017f\":{}}"),
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t","tas` + "\u212a" + `Id":"u"}}`),
	} {
		for rules := range uint8(8) {
			f.Add(seed, rules)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, bits uint8) {
		rules := jsonrpc.Rules{Transport: jsonrpc.Transport(bits & 1), Batch: bits&2 != 0, Responses: bits&4 != 0}
		before := bytes.Clone(body)
		got, err := jsonrpc.Parse(body, rules)
		if !bytes.Equal(body, before) {
			t.Fatal("Parse wrote into the body")
		}
		if err != nil {
			checkError(t, body, err)
			return
		}
		if !jsontext.Value(body).IsValid() {
			t.Fatal("jsontext refuses it")
		}
		checkReading(t, body, got)
	})
}

// checkError expects a well-made refusal.
func checkError(t *testing.T, body []byte, err error) {
	t.Helper()
	fault, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || fault.Reason == "" || fault.Message == "" {
		t.Fatalf("no reason: %v", err)
	}
	switch fault.Code {
	case jsonrpc.CodeParse, jsonrpc.CodeInvalidRequest:
		if fault.ID != nil {
			t.Fatalf("%v echoes an id", err)
		}
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeTooLarge:
		if !bytes.Contains(body, fault.ID) {
			t.Fatalf("%v echoes %q", err, fault.ID)
		}
	default:
		t.Fatalf("code %d", fault.Code)
	}
}

// checkReading compares with what encoding/json makes of the body.
func checkReading(t *testing.T, body []byte, got jsonrpc.Body) {
	t.Helper()
	elements := []json.RawMessage{body}
	if got.Batch {
		elements = nil
		read(t, body, &elements)
	}
	if len(elements) != len(got.Messages) || len(elements) == 0 || len(elements) > jsonrpc.MaxBatch {
		t.Fatalf("%d messages, want %d", len(got.Messages), len(elements))
	}
	for i, m := range got.Messages {
		checkMessage(t, elements[i], m)
	}
}

func checkMessage(t *testing.T, element []byte, m jsonrpc.Message) {
	t.Helper()
	var want carelessMessage
	read(t, element, &want)
	same(t, "jsonrpc", text(t, want.Version), "2.0")
	same(t, "id", string(m.ID), string(want.ID))
	answer := want.Result != nil || want.Error != nil
	switch m.Kind {
	case jsonrpc.Response:
		if !answer || want.Method != nil || want.ID == nil || m.Method != "" {
			t.Fatal("no response")
		}
		return
	case jsonrpc.Request, jsonrpc.Notification:
		if answer || (want.ID != nil) != (m.Kind == jsonrpc.Request) {
			t.Fatalf("no %v", m.Kind)
		}
	default:
		t.Fatal("no kind")
	}
	same(t, "method", m.Method, text(t, want.Method))
	checkParams(t, want.Params, m)
}

func checkParams(t *testing.T, raw json.RawMessage, m jsonrpc.Message) {
	t.Helper()
	if string(raw) == "null" {
		raw = nil
	}
	same(t, "params", string(m.Params), string(raw))
	var want carelessParams
	if len(raw) > 0 && raw[0] == '{' {
		read(t, raw, &want)
	}
	same(t, "arguments", string(m.Arguments), string(want.Arguments))
	var meta carelessMeta
	if len(want.Meta) > 0 {
		read(t, want.Meta, &meta)
	}
	same(t, "_meta version", m.Meta.ProtocolVersion, text(t, meta.Version))
	if m.Meta.HasClientCapabilities != (meta.Capabilities != nil) || m.Meta.HasProtocolVersion != (meta.Version != nil) {
		t.Fatalf("meta %+v", m.Meta)
	}
	selector := map[string]json.RawMessage{
		"tools/call": want.Name, "prompts/get": want.Name,
		"resources/read": want.URI, "resources/subscribe": want.URI, "resources/unsubscribe": want.URI,
		"tasks/get": want.TaskID, "tasks/update": want.TaskID, "tasks/cancel": want.TaskID, "tasks/result": want.TaskID,
		"logging/setLevel": want.Level,
	}
	switch m.Method {
	case "completion/complete":
		checkRef(t, want.Ref, m)
	case "initialize":
		same(t, "protocolVersion", m.ProtocolVersion, text(t, want.ProtocolVersion))
	case "subscriptions/listen":
		checkSubscriptions(t, want.Notifications, m)
	default:
		same(t, "selector", m.Selector, text(t, selector[m.Method]))
	}
	if m.HasSelector != (m.Selector != "") {
		t.Fatalf("selector %q, has %v", m.Selector, m.HasSelector)
	}
}

func checkRef(t *testing.T, raw json.RawMessage, m jsonrpc.Message) {
	t.Helper()
	var want struct{ Type, Name, URI json.RawMessage }
	read(t, raw, &want)
	same(t, "ref", m.Ref, text(t, want.Type))
	same(t, "selector", m.Selector, text(t, want.Name)+text(t, want.URI))
}

func checkSubscriptions(t *testing.T, raw json.RawMessage, m jsonrpc.Message) {
	t.Helper()
	var want struct{ ResourceSubscriptions []string }
	if len(raw) > 0 {
		read(t, raw, &want)
	}
	if len(want.ResourceSubscriptions) != len(m.Subscriptions) {
		t.Fatalf("subscriptions %q, want %q", m.Subscriptions, want.ResourceSubscriptions)
	}
	for i, uri := range want.ResourceSubscriptions {
		same(t, "subscription", m.Subscriptions[i], uri)
	}
}

// read expects that encoding/json reads raw at all.
func read(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
}

// text is a string as encoding/json reads it; "" when there is none.
func text(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var s string
	if raw != nil {
		read(t, raw, &s)
	}
	return s
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("%s %q, encoding/json reads %q", what, got, want)
	}
}
