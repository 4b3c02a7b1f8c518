package jsonrpc_test

import (
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

func TestAppendError(t *testing.T) {
	for _, test := range []struct {
		name      string
		transport jsonrpc.Transport
		failure   jsonrpc.Failure
		want      string
	}{
		{
			"id as it was spelled", jsonrpc.RPC,
			jsonrpc.Failure{ID: raw(`"\u0041"`), Code: -31403, Message: "no"},
			`{"jsonrpc":"2.0","id":"\u0041","error":{"code":-31403,"message":"no"}}`,
		},
		{
			"unknown id on mcp", jsonrpc.MCP,
			jsonrpc.Failure{Code: -32700, Message: "parse error"},
			`{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}`,
		},
		{
			"unknown id on rpc", jsonrpc.RPC,
			jsonrpc.Failure{Code: -32700, Message: "parse error"},
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`,
		},
		{
			"data", jsonrpc.MCP,
			jsonrpc.Failure{
				ID: raw("1"), Code: -31429, Message: "slow down",
				Data: jsonrpc.Data{Reason: "rate", RequestID: "r-1", RetryAfter: 30},
			},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-31429,"message":"slow down","data":{"reason":"rate","request_id":"r-1","retry_after":30}}}`,
		},
		{
			"one datum", jsonrpc.MCP,
			jsonrpc.Failure{ID: raw("1"), Code: -31429, Message: "slow down", Data: jsonrpc.Data{RetryAfter: 30}},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-31429,"message":"slow down","data":{"retry_after":30}}}`,
		},
		{
			"revisions", jsonrpc.MCP,
			jsonrpc.Failure{
				ID: raw("1"), Code: -32022, Message: "unsupported",
				Data: jsonrpc.Data{RequestID: "r", Supported: []string{"2025-11-25", "2025-06-18"}, Requested: `20"30`},
			},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"unsupported","data":{"request_id":"r","supported":["2025-11-25","2025-06-18"],"requested":"20\"30"}}}`,
		},
		{
			"no revision at all", jsonrpc.MCP,
			jsonrpc.Failure{ID: raw("1"), Code: -32022, Message: "unsupported", Data: jsonrpc.Data{Supported: []string{}}},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"unsupported","data":{"supported":[],"requested":""}}}`,
		},
		{
			"text is quoted", jsonrpc.MCP,
			jsonrpc.Failure{ID: raw("1"), Code: -31403, Message: "a\"b\\\n\x00\xff"},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-31403,"message":"a\"b\\\n\u0000` + "\ufffd" + `"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := string(jsonrpc.AppendError([]byte("x"), test.transport, test.failure))
			if got != "x"+test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if test.failure.ID != nil { // Go's SDK wants one
				readable(t, got[1:])
			}
		})
	}
}

func TestAppendToolDenial(t *testing.T) {
	for _, test := range []struct {
		name   string
		modern bool
		want   string
	}{
		{"legacy", false, `{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"not \"you\""}],"isError":true}}`},
		{"modern", true, `{"jsonrpc":"2.0","id":"a","result":{"resultType":"complete","content":[{"type":"text","text":"not \"you\""}],"isError":true}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := string(jsonrpc.AppendToolDenial(nil, raw(`"a"`), `not "you"`, test.modern))
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			readable(t, got)
		})
	}
}

func TestAppendBatch(t *testing.T) {
	first := jsonrpc.AppendError(nil, jsonrpc.RPC, jsonrpc.Failure{ID: raw("1"), Code: -31403, Message: "no"})
	second := jsonrpc.AppendToolDenial(nil, raw("2"), "no", false)
	want := `[` + string(first) + `,` + string(second) + `]`
	if got := string(jsonrpc.AppendBatch(nil, first, second)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(jsonrpc.AppendBatch(nil, first)); got != `[`+string(first)+`]` {
		t.Errorf("got  %s", got)
	}
}

// readable expects that an independent client reads the answer.
func readable(t *testing.T, answer string) {
	t.Helper()
	if _, err := sdk.DecodeMessage([]byte(answer)); err != nil {
		t.Errorf("%s: %v", answer, err)
	}
}
