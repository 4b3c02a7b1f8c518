package extauthz

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// errorData is the data of a JSON-RPC error.
type errorData = jsonrpc.Data

// errorBody is one JSON-RPC error of our own.
func errorBody(transport jsonrpc.Transport, id jsontext.Value, out outward, data errorData) []byte {
	return jsonrpc.AppendError(nil, transport, jsonrpc.Failure{ID: id, Code: out.code, Message: out.text, Data: data})
}

// deniedBody is the status and body of a denial.
func deniedBody(d *decision) (int, []byte) {
	out := d.denied.outward()
	data := errorData{
		Reason: d.denied.shown(), RequestID: d.req.id,
		Supported: d.denied.supported, Requested: d.denied.requested,
		RetryAfter: d.denied.retryAfter, Scopes: d.denied.scopes,
	}
	switch {
	case d.denied.reason == reasonPreflight:
		return out.status, nil
	case d.denied.hidden:
		return hiddenBody(d)
	case d.denied.keepsSession(d):
		return keptBody(d, out, data)
	case out.status == http.StatusUnauthorized:
		d.denied.id = unauthenticatedID(d)
	}
	if d.call.batch && out != sessionUnknown { // that one is told without an id, always
		return out.status, batchBody(d, out, data)
	}
	return out.status, errorBody(d.req.transport, d.denied.id, out, data)
}

// shown is the reason that the caller may know: of a credential or session it
// learns only that it does not do.
func (d *denial) shown() string {
	switch outwards[d.reason] {
	case unauthorized:
		return "unauthenticated"
	case sessionUnknown:
		return string(reasonSession)
	}
	if d.reason == reasonPolicy || d.reason == reasonBody {
		return d.detail
	}
	return string(d.reason)
}

// keepsSession reports a denial that is told with 200 on /mcp, because any 4xx
// ends the whole session of some SDKs (contract section 4).
func (d *denial) keepsSession(in *decision) bool {
	policy := d.reason == reasonPolicy || d.reason == reasonStreams || d.reason == reasonLimit || d.reason == reasonTool
	return policy && in.req.transport == jsonrpc.MCP && in.req.method == http.MethodPost && !in.srv.literalDenials
}

// keptBody is a denial that the session survives.
func keptBody(d *decision, out outward, data errorData) (int, []byte) {
	if !d.call.answered() {
		return http.StatusAccepted, nil
	}
	if d.call.batch {
		return http.StatusOK, batchBody(d, out, data)
	}
	return http.StatusOK, keptAnswer(d, d.call.messages[0], out, data)
}

func keptAnswer(d *decision, m jsonrpc.Message, out outward, data errorData) []byte {
	if m.Method == "tools/call" {
		text := out.text + d.denied.help(out.text) + " (request " + d.req.id + ")"
		return jsonrpc.AppendToolDenial(nil, m.ID, text, d.call.modern)
	}
	return errorBody(jsonrpc.MCP, m.ID, out, data)
}

// hiddenBody answers as a server that has never heard of what was asked for, on
// both transports: nothing in it tells of a policy.
func hiddenBody(d *decision) (int, []byte) {
	if !d.call.answered() {
		return http.StatusAccepted, nil
	}
	var answers [][]byte
	for i, m := range d.call.messages {
		switch {
		case m.Kind != jsonrpc.Request:
		case !d.call.batch || i == d.denied.index:
			answers = append(answers, errorBody(d.req.transport, m.ID, unknown(m), errorData{}))
		default:
			answers = append(answers, errorBody(d.req.transport, m.ID, notPassed, errorData{}))
		}
	}
	if d.call.batch {
		return http.StatusOK, jsonrpc.AppendBatch(nil, answers...)
	}
	return http.StatusOK, answers[0]
}

// batchBody answers every request of a batch: none of them was passed on.
func batchBody(d *decision, out outward, data errorData) []byte {
	var answers [][]byte
	for _, m := range d.call.messages {
		switch {
		case m.Kind != jsonrpc.Request:
		case d.denied.keepsSession(d):
			answers = append(answers, keptAnswer(d, m, out, data))
		default:
			answers = append(answers, errorBody(d.req.transport, m.ID, out, data))
		}
	}
	if len(answers) == 0 {
		return errorBody(d.req.transport, nil, out, data)
	}
	return jsonrpc.AppendBatch(nil, answers...)
}

// unauthenticatedMost is the longest body that is read only to echo its id to
// somebody unknown, in bytes.
const unauthenticatedMost = 64 << 10

// unauthenticatedID echoes the id of a body that the strict parser accepts. It
// changes only the body of a 401, never the decision.
func unauthenticatedID(d *decision) jsontext.Value {
	if d.req.method != http.MethodPost || len(d.req.body) > unauthenticatedMost || d.req.cut {
		return nil
	}
	body, err := jsonrpc.Parse(d.req.body, jsonrpc.Rules{Transport: d.req.transport, Batch: true, Responses: true})
	if err != nil {
		return nil
	}
	return call{messages: body.Messages, batch: body.Batch}.id()
}
