package jsonrpc_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// The rules of the usual places.
var (
	opener = jsonrpc.Rules{}
	legacy = jsonrpc.Rules{Responses: true}
	march  = jsonrpc.Rules{Responses: true, Batch: true} // 2025-03-26, batches allowed
	rpc    = jsonrpc.Rules{Transport: jsonrpc.RPC, Batch: true}
)

// one is the body of a single message.
func one(m jsonrpc.Message) jsonrpc.Body { return jsonrpc.Body{Messages: []jsonrpc.Message{m}} }

func raw(s string) jsontext.Value { return jsontext.Value(s) }

func TestParseAccepts(t *testing.T) {
	ping := jsonrpc.Message{Kind: jsonrpc.Request, ID: raw("1"), Method: "ping"}
	for _, test := range []struct {
		name  string
		rules jsonrpc.Rules
		body  string
		want  jsonrpc.Body
	}{
		{"request", legacy, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, one(ping)},
		{"blanks around", legacy, " \t\r\n{ \"jsonrpc\" : \"2.0\" , \"id\":\t1,\n\"method\":\"ping\" } \r\n", one(ping)},
		{"escaped key and value", legacy, `{"jsonrpc":"2\u002e0","id":1,"\u006dethod":"p\u0069ng"}`, one(ping)},
		{
			"keys in any order", opener, `{"params":{"arguments":{},"name":"echo"},"method":"tools/call","id":"a","jsonrpc":"2.0"}`,
			one(jsonrpc.Message{
				Kind: jsonrpc.Request, ID: raw(`"a"`), Method: "tools/call", Selector: "echo", HasSelector: true,
				Params: raw(`{"arguments":{},"name":"echo"}`), Arguments: raw(`{}`),
			}),
		},
		{"unknown keys", legacy, `{"jsonrpc":"2.0","id":1,"method":"ping","x":{"jsonrpc":1},"methods":[1]}`, one(ping)},
		{"null params", legacy, `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, one(ping)},
		{
			"notification", legacy, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			one(jsonrpc.Message{Kind: jsonrpc.Notification, Method: "notifications/initialized"}),
		},
		{
			"id keeps its spelling", legacy, `{"jsonrpc":"2.0","id":"\u0041\/","method":"ping"}`,
			one(jsonrpc.Message{Kind: jsonrpc.Request, ID: raw(`"\u0041\/"`), Method: "ping"}),
		},
		{
			"largest id", legacy, `{"jsonrpc":"2.0","id":-9007199254740991,"method":"ping"}`,
			one(jsonrpc.Message{Kind: jsonrpc.Request, ID: raw("-9007199254740991"), Method: "ping"}),
		},
		{
			"any number as id on rpc", rpc, `{"jsonrpc":"2.0","id":-1.50e+400,"method":"ping"}`,
			one(jsonrpc.Message{Kind: jsonrpc.Request, ID: raw("-1.50e+400"), Method: "ping"}),
		},
		{
			"array params on rpc", rpc, `{"jsonrpc":"2.0","id":1,"method":"sum","params":[1,{"Name":2}]}`,
			one(jsonrpc.Message{Kind: jsonrpc.Request, ID: raw("1"), Method: "sum", Params: raw(`[1,{"Name":2}]`)}),
		},
		{"result", legacy, `{"jsonrpc":"2.0","id":1,"result":{"ID":1,"id":2}}`, one(jsonrpc.Message{Kind: jsonrpc.Response, ID: raw("1")})},
		{"null result", legacy, `{"jsonrpc":"2.0","id":1,"result":null}`, one(jsonrpc.Message{Kind: jsonrpc.Response, ID: raw("1")})},
		{"error", legacy, `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}`, one(jsonrpc.Message{Kind: jsonrpc.Response, ID: raw(`"x"`)})},
		{
			"initialize", opener, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`,
			one(jsonrpc.Message{Kind: jsonrpc.Request, ID: raw("1"), Method: "initialize", ProtocolVersion: "2025-11-25", Params: raw(`{"protocolVersion":"2025-11-25"}`)}),
		},
		{
			"bare initialize on rpc", rpc, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`,
			one(jsonrpc.Message{Kind: jsonrpc.Request, ID: raw("1"), Method: "initialize"}),
		},
		{
			"meta", opener, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
				`"io.modelcontextprotocol/clientCapabilities":{},"com.example/Name":1,"Name":1}}}`,
			one(jsonrpc.Message{
				Kind: jsonrpc.Request, ID: raw("1"), Method: "tools/list",
				Params: raw(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"com.example/Name":1,"Name":1}}`),
				Meta:   jsonrpc.Meta{ProtocolVersion: "2026-07-28", HasProtocolVersion: true, HasClientCapabilities: true},
			}),
		},
		{
			"null meta", legacy, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":null}}`,
			one(jsonrpc.Message{Kind: jsonrpc.Request, ID: raw("1"), Method: "tools/list", Params: raw(`{"_meta":null}`)}),
		},
		{"batch of one", march, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, jsonrpc.Body{Batch: true, Messages: []jsonrpc.Message{ping}}},
		{
			"batch of kinds", march, `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"result":1}]`,
			jsonrpc.Body{Batch: true, Messages: []jsonrpc.Message{ping, {Kind: jsonrpc.Notification, Method: "n"}, {Kind: jsonrpc.Response, ID: raw("2")}}},
		},
		{
			"initialize in a batch on rpc", rpc, `[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`,
			jsonrpc.Body{Batch: true, Messages: []jsonrpc.Message{{Kind: jsonrpc.Request, ID: raw("1"), Method: "initialize"}}},
		},
		{
			"subscriptions", opener, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a","\u0062"]}}}`,
			one(jsonrpc.Message{
				Kind: jsonrpc.Request, ID: raw("1"), Method: "subscriptions/listen", Subscriptions: []string{"a", "b"},
				Params: raw(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a","\u0062"]}}`),
			}),
		},
		{
			"reference to a prompt", legacy, `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p","title":"P"}}}`,
			one(jsonrpc.Message{
				Kind: jsonrpc.Request, ID: raw("1"), Method: "completion/complete", Ref: "ref/prompt", Selector: "p", HasSelector: true,
				Params: raw(`{"ref":{"type":"ref/prompt","name":"p","title":"P"}}`),
			}),
		},
		{
			"reference to a resource", legacy, `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"uri":"u","type":"ref/resource"}}}`,
			one(jsonrpc.Message{
				Kind: jsonrpc.Request, ID: raw("1"), Method: "completion/complete", Ref: "ref/resource", Selector: "u", HasSelector: true,
				Params: raw(`{"ref":{"uri":"u","type":"ref/resource"}}`),
			}),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := jsonrpc.Parse([]byte(test.body), test.rules)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// request is a request of id 7 with the given members behind it.
func request(rest string) string { return `{"jsonrpc":"2.0","id":7,` + rest + `}` }

// tool is a tools/call of id 7 with the given params behind the name.
func tool(rest string) string {
	return request(`"method":"tools/call","params":{"name":"t"` + rest + `}`)
}

type refusal struct {
	name   string
	rules  jsonrpc.Rules
	body   string
	code   int
	reason string
	id     string // what is echoed
}

func TestParseRefusesWhatIsNotIJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	refuse(t, []refusal{
		{"empty", legacy, ``, -32700, "empty_body", ""},
		{"blank", legacy, " \r\n\t", -32700, "empty_body", ""},
		{"byte order mark", legacy, "\xef\xbb\xbf" + request(`"method":"ping"`), -32700, "byte_order_mark", ""},
		{"UTF-16", legacy, "\xff\xfe{\x00}\x00", -32700, "invalid_utf8", ""},
		{"invalid UTF-8 in a value", legacy, request("\"method\":\"pi\xffng\""), -32700, "invalid_utf8", ""},
		{"invalid UTF-8 in a key", legacy, request("\"method\":\"ping\",\"\xc0\xaf\":1"), -32700, "invalid_utf8", ""},
		{"surrogate as UTF-8", legacy, request("\"method\":\"\xed\xa0\x80\""), -32700, "invalid_utf8", ""},
		{"lone high surrogate", legacy, request(`"method":"a\ud800"`), -32700, "lone_surrogate", ""},
		{"lone low surrogate", legacy, request(`"method":"a\uDC00b"`), -32700, "lone_surrogate", ""},
		{"two high surrogates", legacy, request(`"method":"\ud800\ud800"`), -32700, "lone_surrogate", ""},
		{"high surrogate and a letter", legacy, request(`"method":"\ud800\u0041"`), -32700, "lone_surrogate", ""},
		{"lone surrogate in a key", legacy, tool(`,"arguments":{"\udfff":1}`), -32700, "lone_surrogate", ""},
		{"truncated", legacy, `{"jsonrpc":"2.0","id":7,"method":"ping"`, -32700, "truncated_body", ""},
		{"truncated string", legacy, `{"jsonrpc":"2.0","id":7,"method":"pi`, -32700, "truncated_body", ""},
		{"truncated batch", march, `[` + request(`"method":"ping"`), -32700, "truncated_body", ""},
		{"trailing brace", legacy, request(`"method":"ping"`) + `}`, -32700, "trailing_data", ""},
		{"second message", legacy, request(`"method":"ping"`) + "\n" + tool(``), -32700, "trailing_data", ""},
		{"trailing NUL", legacy, request(`"method":"ping"`) + "\x00", -32700, "trailing_data", ""},
		{"trailing comma", legacy, request(`"method":"ping",`), -32700, "invalid_json", ""},
		{"comment", legacy, request(`/**/"method":"ping"`), -32700, "invalid_json", ""},
		{"single quotes", legacy, `{'jsonrpc':'2.0'}`, -32700, "invalid_json", ""},
		{"bare key", legacy, `{jsonrpc:"2.0"}`, -32700, "invalid_json", ""},
		{"key is a number", legacy, request(`1:"ping"`), -32700, "invalid_json", ""},
		{"key is an object", legacy, request(`{"a":{}}:"ping"`), -32700, "invalid_json", ""},
		{"mismatched end", legacy, `{"jsonrpc":"2.0"]`, -32700, "invalid_json", ""},
		{"NaN", legacy, tool(`,"arguments":{"a":NaN}`), -32700, "invalid_json", ""},
		{"leading zero", legacy, `{"jsonrpc":"2.0","id":007,"method":"ping"}`, -32700, "invalid_json", ""},
		{"raw control character", legacy, request("\"method\":\"a\x00b\""), -32700, "invalid_json", ""},
		{"too deep in arguments", legacy, tool(`,"arguments":{"a":` + deep(62) + `}`), -32700, "too_deep", ""},
		{"too deep in an unknown key", legacy, request(`"method":"ping","x":` + deep(64)), -32700, "too_deep", ""},
		{"too deep in params", rpc, request(`"method":"sum","params":` + deep(64)), -32700, "too_deep", ""},
		{"too deep in a batch", march, `[` + request(`"method":"ping","x":`+deep(63)) + `]`, -32700, "too_deep", ""},
		{"bracket bomb", legacy, strings.Repeat("[", 1<<20), -32600, "batch_not_allowed", ""},
		{"bracket bomb as a batch", march, strings.Repeat("[", 1<<20), -32700, "too_deep", ""},
		{"object bomb", legacy, strings.Repeat(`{"a":`, 1<<18), -32700, "too_deep", ""},
		{"bomb as a key", legacy, `{` + strings.Repeat(`[`, 1<<20), -32700, "invalid_json", ""},
		{"duplicate id", legacy, `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, -32700, "duplicate_key", ""},
		{"duplicate method, one escaped", legacy, request(`"method":"ping","m\u0065thod":"tools/list"`), -32700, "duplicate_key", ""},
		{"duplicate name", legacy, tool(`,"name":"u"`), -32700, "duplicate_key", ""},
		{"duplicate in arguments", legacy, tool(`,"arguments":{"a":[{"b":1,"b":1}]}`), -32700, "duplicate_key", ""},
		{"duplicate escaped in arguments", legacy, tool(`,"arguments":{"a":1,"\u0061":1}`), -32700, "duplicate_key", ""},
		{"duplicate in an unknown key", legacy, request(`"method":"ping","x":[{"y":{"z":1,"z":2}}]`), -32700, "duplicate_key", ""},
		{"duplicate in a result", legacy, `{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":1}}`, -32700, "duplicate_key", ""},
	})
	accept(t, legacy, tool(`,"arguments":{"a":`+deep(61)+`}`))
	accept(t, legacy, tool(`,"arguments":{"a":"\ud83d\ude00"}`))
	accept(t, march, `[`+request(`"method":"ping","x":`+deep(62))+`]`)
}

func TestParseRefusesWhatIsNoMessage(t *testing.T) {
	ping := request(`"method":"ping"`)
	refuse(t, []refusal{
		{"string", legacy, `"ping"`, -32600, "message_not_object", ""},
		{"null", legacy, `null`, -32600, "message_not_object", ""},
		{"string in a batch", march, `["ping"]`, -32600, "message_not_object", ""},
		{"batch in a batch", march, `[[` + ping + `]]`, -32600, "message_not_object", ""},
		{"batch not allowed", legacy, `[` + ping + `]`, -32600, "batch_not_allowed", ""},
		{"empty batch", rpc, `[]`, -32600, "batch_empty", ""},
		{"batch of 33", rpc, `[` + strings.Repeat(ping+",", 32) + ping + `]`, -32600, "batch_too_long", ""},
		{"initialize in a batch", march, `[` + ping + `,` + request(`"method":"initialize","params":{"protocolVersion":"2025-03-26"}`) + `]`, -32600, "initialize_in_batch", ""},
		{"no version", legacy, `{"id":7,"method":"ping"}`, -32600, "jsonrpc_not_2_0", ""},
		{"version 1.0", legacy, `{"jsonrpc":"1.0","id":7,"method":"ping"}`, -32600, "jsonrpc_not_2_0", ""},
		{"version is a number", legacy, `{"jsonrpc":2.0,"id":7,"method":"ping"}`, -32600, "jsonrpc_not_2_0", ""},
		{"version with a blank", legacy, `{"jsonrpc":"2.0 ","id":7,"method":"ping"}`, -32600, "jsonrpc_not_2_0", ""},
		{"no method", legacy, `{"jsonrpc":"2.0","id":7}`, -32600, "method_not_string", ""},
		{"empty method", legacy, request(`"method":""`), -32600, "method_not_string", ""},
		{"null method", legacy, request(`"method":null`), -32600, "method_not_string", ""},
		{"method is an array", legacy, request(`"method":["tools/call"]`), -32600, "method_not_string", ""},
		{"null id", legacy, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600, "invalid_id", ""},
		{"null id on rpc", rpc, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600, "invalid_id", ""},
		{"id is an object", rpc, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, "invalid_id", ""},
		{"id is true", rpc, `{"jsonrpc":"2.0","id":true,"method":"ping"}`, -32600, "invalid_id", ""},
		{"id 1.0", legacy, `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, -32600, "invalid_id", ""},
		{"id 1e2", legacy, `{"jsonrpc":"2.0","id":1e2,"method":"ping"}`, -32600, "invalid_id", ""},
		{"id 2^53", legacy, `{"jsonrpc":"2.0","id":9007199254740992,"method":"ping"}`, -32600, "invalid_id", ""},
		{"id -2^53", legacy, `{"jsonrpc":"2.0","id":-9007199254740992,"method":"ping"}`, -32600, "invalid_id", ""},
		{"id 2^64+7", legacy, `{"jsonrpc":"2.0","id":18446744073709551623,"method":"ping"}`, -32600, "invalid_id", ""},
		{"params is a string", legacy, request(`"method":"ping","params":"x"`), -32600, "params_not_structured", ""},
		{"params is false", rpc, request(`"method":"ping","params":false`), -32600, "params_not_structured", ""},
		{"response not allowed", opener, `{"jsonrpc":"2.0","id":7,"result":{}}`, -32600, "response_not_allowed", ""},
		{"response on rpc", jsonrpc.Rules{Transport: jsonrpc.RPC, Responses: true}, `{"jsonrpc":"2.0","id":7,"result":{}}`, -32600, "response_not_allowed", ""},
		{"method and result", legacy, request(`"method":"ping","result":{}`), -32600, "message_kind_unclear", ""},
		{"method and null error", legacy, request(`"method":"ping","error":null`), -32600, "message_kind_unclear", ""},
		{"result and error", legacy, request(`"result":1,"error":null`), -32600, "message_kind_unclear", ""},
		{"response with params", legacy, request(`"result":1,"params":{}`), -32600, "message_kind_unclear", ""},
		{"response without id", legacy, `{"jsonrpc":"2.0","result":{}}`, -32600, "message_kind_unclear", ""},
		{"response with null id", legacy, `{"jsonrpc":"2.0","id":null,"error":{}}`, -32600, "invalid_id", ""},
		{"error is a string", legacy, request(`"error":"no"`), -32600, "message_kind_unclear", ""},
	})
	accept(t, rpc, `[`+strings.Repeat(ping+",", 31)+ping+`]`)
}

func TestParseRefusesParamsThatDoNotFit(t *testing.T) {
	refuse(t, []refusal{
		{"array on mcp", legacy, request(`"method":"tools/list","params":[]`), -32602, "params_array_not_allowed", "7"},
		{"array for a tool on rpc", rpc, request(`"method":"tools/call","params":["t"]`), -32602, "params_array_not_allowed", "7"},
		{"null for a tool", legacy, request(`"method":"tools/call","params":null`), -32602, "selector_missing", "7"},
		{"initialize without version", opener, request(`"method":"initialize","params":{}`), -32602, "param_of_wrong_type", "7"},
		{"initialize without params", opener, request(`"method":"initialize"`), -32602, "param_of_wrong_type", "7"},
		{"version is a number", rpc, request(`"method":"initialize","params":{"protocolVersion":1}`), -32602, "param_of_wrong_type", "7"},
		{"in a notification", legacy, `{"jsonrpc":"2.0","method":"tools/call"}`, -32602, "selector_missing", ""},
		{"in a batch", rpc, `[` + request(`"method":"tools/call"`) + `]`, -32602, "selector_missing", ""},
		{"meta is a string", legacy, request(`"method":"ping","params":{"_meta":"x"}`), -32602, "param_of_wrong_type", "7"},
		{"meta version is a number", opener, request(`"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}`), -32602, "param_of_wrong_type", "7"},
		{"meta capabilities are null", opener, request(`"method":"ping","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":null}}`), -32602, "param_of_wrong_type", "7"},
		{"ref is a string", legacy, request(`"method":"completion/complete","params":{"ref":"p"}`), -32602, "selector_missing", "7"},
		{"ref of unknown type", legacy, request(`"method":"completion/complete","params":{"ref":{"type":"ref/tool","name":"p"}}`), -32602, "selector_missing", "7"},
		{"ref without name", legacy, request(`"method":"completion/complete","params":{"ref":{"type":"ref/prompt"}}`), -32602, "selector_missing", "7"},
		{"ref with name and uri", legacy, request(`"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p","uri":"u"}}`), -32602, "selector_missing", "7"},
		{"subscription is a number", opener, request(`"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[1]}}`), -32602, "param_of_wrong_type", "7"},
		{"subscriptions are a string", opener, request(`"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":"a"}}`), -32602, "param_of_wrong_type", "7"},
		{"notifications are an array", opener, request(`"method":"subscriptions/listen","params":{"notifications":["a"]}`), -32602, "param_of_wrong_type", "7"},
		{"fault behind a fault is told first", legacy, request(`"method":"tools/call","params":{}`) + `x`, -32700, "trailing_data", ""},
	})
}

func TestParseRefusesMissingSelector(t *testing.T) {
	for method, key := range map[string]string{
		"tools/call": "name", "prompts/get": "name",
		"resources/read": "uri", "resources/subscribe": "uri", "resources/unsubscribe": "uri",
		"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId", "tasks/result": "taskId",
		"logging/setLevel": "level",
	} {
		body := func(params string) string { return request(`"method":"` + method + `","params":` + params) }
		refuse(t, []refusal{
			{method + " absent", legacy, body(`{"other":"x"}`), -32602, "selector_missing", "7"},
			{method + " null", legacy, body(`{"` + key + `":null}`), -32602, "selector_missing", "7"},
			{method + " number", rpc, body(`{"` + key + `":1}`), -32602, "selector_missing", "7"},
			{method + " object", legacy, body(`{"` + key + `":{"` + key + `":"x"}}`), -32602, "selector_missing", "7"},
			{method + " empty", legacy, body(`{"` + key + `":""}`), -32602, "selector_missing", "7"},
			{method + " only in meta", legacy, body(`{"_meta":{"` + key + `":"x"}}`), -32602, "selector_missing", "7"},
		})
		got := accept(t, legacy, body(`{"`+key+`":"\u0078\u0000 y"}`)).Messages[0]
		if got.Selector != "x\x00 y" || !got.HasSelector || got.Method != method {
			t.Errorf("%s: got %+v", method, got)
		}
	}
}

func TestParseRefusesTooLarge(t *testing.T) {
	small := jsonrpc.Rules{MaxBytes: 30, Responses: true, Batch: true}
	refuse(t, []refusal{
		{"request", small, request(`"method":"ping"`), -31413, "body_too_large", "7"},
		{"request that does not fit", small, request(`"method":"tools/call"`), -31413, "body_too_large", "7"},
		{"notification", small, `{"jsonrpc":"2.0","method":"notifications/x"}`, -31413, "body_too_large", ""},
		{"response", small, `{"jsonrpc":"2.0","id":7,"result":{}}`, -31413, "body_too_large", ""},
		{"batch", small, `[` + request(`"method":"ping"`) + `]`, -31413, "body_too_large", ""},
		{"no JSON", small, request(`"method":"ping"`) + "]", -31413, "body_too_large", ""},
		{"over the hard limit", legacy, request(`"method":"ping"`) + strings.Repeat(" ", 4<<20), -31413, "body_too_large", ""},
		{"over the hard limit, higher rule", jsonrpc.Rules{MaxBytes: 8 << 20}, request(`"method":"ping"`) + strings.Repeat(" ", 4<<20), -31413, "body_too_large", ""},
	})
	exact := request(`"method":"ping"`)
	accept(t, jsonrpc.Rules{MaxBytes: len(exact)}, exact)
	accept(t, legacy, exact+strings.Repeat(" ", 4<<20-len(exact)))
}

// Nothing of the caller's may come back in an error's text.
func TestErrorNeverQuotesTheBody(t *testing.T) {
	for _, body := range []string{
		`{"CANARY":1,"CANARY":2}`, `"CANARY"`, `{"jsonrpc":"CANARY"}`, `{"jsonrpc":"2.0","id":["CANARY"],"method":"m"}`,
		`CANARY`, `{"CANARY`, `{"CANARY":"\ud800"}`, `{"CANARY":CANARY}`, request(`"method":"ping"`) + `CANARY`,
		tool(`,"CANARY":{"CANARY":` + strings.Repeat("[", 70)), tool(`,"arguments":{"canary":1,"CANARY":2}`),
		request(`"method":"CANARY","params":"CANARY"`), request(`"method":"completion/complete","params":{"ref":{"type":"CANARY"}}`),
	} {
		_, err := jsonrpc.Parse([]byte(body), legacy)
		if err == nil || strings.Contains(strings.ToLower(err.Error()), "canary") {
			t.Errorf("Parse(%.60s): %v", body, err)
		}
	}
}

// A body that was read before, or is read beside it, changes nothing.
func TestParseKeepsNothingBetweenBodies(t *testing.T) {
	bodies := []string{
		tool(`,"arguments":{"a":1,"b":{"c":2}}`), tool(`,"arguments":{"A":1}`), tool(`,"arguments":{"a":1,"A":{"b":{`),
		request(`"method":"tools/call"`), `[` + request(`"method":"tools/call"`) + `]`, `{"jsonrpc`, request(`"method":"ping"`), string(call()),
	}
	want := make([]string, len(bodies))
	for i, body := range bodies {
		want[i] = outcome([]byte(body))
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 400 {
				n := (i * 7) % len(bodies)
				if got := outcome([]byte(bodies[n])); got != want[n] {
					t.Errorf("got %s\nwant %s", got, want[n])
				}
			}
		})
	}
	group.Wait()
}

func outcome(body []byte) string {
	before := bytes.Clone(body)
	got, err := jsonrpc.Parse(body, march)
	if !bytes.Equal(before, body) {
		return "Parse wrote into the body"
	}
	return fmt.Sprintf("%+v %v", got, err)
}
