package jsonrpc_test

import (
	"errors"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// refuse expects that each body is refused as the row says.
func refuse(t *testing.T, rows []refusal) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Helper()
			body, err := jsonrpc.Parse([]byte(row.body), row.rules)
			fault, ok := errors.AsType[*jsonrpc.Error](err)
			if !ok {
				t.Fatalf("Parse(%.200s) = %v, want an Error", row.body, err)
			}
			if fault.Code != row.code || fault.Reason != row.reason || string(fault.ID) != row.id {
				t.Errorf("Parse(%.200s)\ngot  %d %s id %q (%s)\nwant %d %s id %q", row.body,
					fault.Code, fault.Reason, fault.ID, fault.Message, row.code, row.reason, row.id)
			}
			if len(body.Messages) != 0 || body.Batch {
				t.Error("messages beside an error")
			}
		})
	}
}

// accept expects that body passes.
func accept(t *testing.T, rules jsonrpc.Rules, body string) jsonrpc.Body {
	t.Helper()
	got, err := jsonrpc.Parse([]byte(body), rules)
	if err != nil {
		t.Errorf("Parse(%.200s): %v", body, err)
		return jsonrpc.Body{Messages: make([]jsonrpc.Message, 1)}
	}
	return got
}
