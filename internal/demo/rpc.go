package demo

import (
	"context"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// rpcRevision is the revision that a caller of /rpc, who never says one, gets.
const rpcRevision = "2025-11-25"

// rpcMessage is a JSON-RPC 2.0 request or response; the id is kept as it came.
type rpcMessage struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   *rpcError      `json:"error,omitzero"`
}

type rpcError struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

// serveRPC answers one JSON-RPC 2.0 message or batch: 200 with JSON, or 202
// when there was nothing to answer.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "request too large or broken off", http.StatusRequestEntityTooLarge)
		return
	}
	answer := s.answerBody(r.Context(), body)
	if answer == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, answer) // a caller that is gone needs no answer
}

// answerBody returns what to send, or nil for nothing.
func (s *Server) answerBody(ctx context.Context, body []byte) any {
	value := jsontext.Value(body)
	if !value.IsValid() {
		return fault(nil, jsonrpc.CodeParseError, "not JSON")
	}
	if value.Kind() != '[' {
		if answer := s.answer(ctx, value); answer != nil {
			return answer
		}
		return nil
	}
	var batch []jsontext.Value
	if err := json.Unmarshal(value, &batch); err != nil || len(batch) == 0 {
		return fault(nil, jsonrpc.CodeInvalidRequest, "an empty batch")
	}
	var answers []*rpcMessage
	for _, element := range batch {
		if answer := s.answer(ctx, element); answer != nil {
			answers = append(answers, answer)
		}
	}
	if answers == nil {
		return nil
	}
	return answers
}

// answer returns the response to one message, or nil for a notification.
func (s *Server) answer(ctx context.Context, value jsontext.Value) *rpcMessage {
	var in rpcMessage
	if err := json.Unmarshal(value, &in); err != nil || in.Version != "2.0" || in.Method == "" {
		return fault(nil, jsonrpc.CodeInvalidRequest, "not a JSON-RPC 2.0 request")
	}
	if in.ID == nil {
		return nil
	}
	out, err := s.call(ctx, in)
	if err != nil {
		return fault(in.ID, jsonrpc.CodeInternalError, err.Error())
	}
	out.ID = in.ID
	return out
}

func fault(id jsontext.Value, code int64, message string) *rpcMessage {
	if id == nil {
		id = jsontext.Value("null")
	}
	return &rpcMessage{Version: "2.0", ID: id, Error: &rpcError{Code: code, Message: message}}
}

// call takes one request to the MCP server through a session that lives no
// longer than the call, in memory and already initialised.
func (s *Server) call(ctx context.Context, in rpcMessage) (*rpcMessage, error) {
	here, there := mcp.NewInMemoryTransports()
	session, err := s.mcp.Connect(ctx, there, &mcp.ServerSessionOptions{State: &mcp.ServerSessionState{
		InitializeParams:  &mcp.InitializeParams{ProtocolVersion: rpcRevision, Capabilities: &mcp.ClientCapabilities{}},
		InitializedParams: &mcp.InitializedParams{},
	}})
	if err != nil {
		return nil, err
	}
	defer session.Close()
	conn, err := here.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	id, err := jsonrpc.MakeID(float64(1))
	if err != nil {
		return nil, err
	}
	if err := conn.Write(ctx, &jsonrpc.Request{ID: id, Method: in.Method, Params: []byte(in.Params)}); err != nil {
		return nil, err
	}
	return response(ctx, conn, id)
}

// response reads until the response to id; what the server asks of its client
// meanwhile is refused, what it only tells is dropped.
func response(ctx context.Context, conn mcp.Connection, id jsonrpc.ID) (*rpcMessage, error) {
	for {
		message, err := conn.Read(ctx)
		if err != nil {
			return nil, err
		}
		switch message := message.(type) {
		case *jsonrpc.Request:
			if !message.IsCall() {
				continue
			}
			refusal := &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "not without a session"}
			if err := conn.Write(ctx, &jsonrpc.Response{ID: message.ID, Error: refusal}); err != nil {
				return nil, err
			}
		case *jsonrpc.Response:
			if message.ID != id {
				continue
			}
			data, err := jsonrpc.EncodeMessage(message)
			if err != nil {
				return nil, err
			}
			out := new(rpcMessage)
			return out, json.Unmarshal(data, out)
		}
	}
}
