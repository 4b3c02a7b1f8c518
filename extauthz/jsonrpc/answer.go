package jsonrpc

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Failure is a JSON-RPC error of the gateway's own.
type Failure struct {
	ID      jsontext.Value // of the request; nil when unknown
	Code    int
	Message string
	Data    Data
}

// Data is an error's data; what is zero is left out, and data itself when all is.
type Data struct {
	Reason     string   // reason
	RequestID  string   // request_id: the gateway's, to ask an operator about
	RetryAfter int      // retry_after, seconds
	Scopes     []string // scopes: that would have helped
	Supported  []string // supported: revisions that would do (-32022); empty but not nil is sent
	Requested  string   // requested: the revision asked for (-32022); sent with Supported
}

// AppendError appends f as a whole message. An unknown id is left out on /mcp
// (MCP: id is optional in an error) and null on /rpc (JSON-RPC 2.0 section 5).
func AppendError(dst []byte, transport Transport, f Failure) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	switch {
	case f.ID != nil:
		dst = appendID(dst, f.ID)
	case transport == RPC:
		dst = appendID(dst, jsontext.Value("null"))
	}
	dst = append(dst, `"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(f.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = appendText(dst, f.Message)
	dst = appendData(dst, f.Data)
	return append(dst, `}}`...)
}

// AppendToolDenial appends the answer to a tools/call that is not allowed: a
// result that says isError, with text as its one block, so that the caller's
// session lives on. modern adds what MCP 2026-07-28 requires of a result.
func AppendToolDenial(dst []byte, id jsontext.Value, text string, modern bool) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	dst = appendID(dst, id)
	dst = append(dst, `"result":{`...)
	if modern {
		dst = append(dst, `"resultType":"complete",`...)
	}
	dst = append(dst, `"content":[{"type":"text","text":`...)
	dst = appendText(dst, text)
	return append(dst, `}],"isError":true}}`...)
}

// AppendBatch appends the answers to a batch, each a whole message, as an array.
// There is no answer to a batch of notifications: answers must not be empty
// (JSON-RPC 2.0 section 6).
func AppendBatch(dst []byte, answers ...[]byte) []byte {
	dst = append(dst, '[')
	for i, answer := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, answer...)
	}
	return append(dst, ']')
}

// appendID appends the member id, byte for byte as the caller spelled it.
func appendID(dst []byte, id jsontext.Value) []byte {
	dst = append(dst, `"id":`...)
	dst = append(dst, id...)
	return append(dst, ',')
}

// appendText appends a JSON string; bytes that are no UTF-8 become U+FFFD.
func appendText(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text) // its error tells only of those
	return dst
}

// appendData appends the member data behind another one, if there is any.
func appendData(dst []byte, d Data) []byte {
	if d.Reason == "" && d.RequestID == "" && d.RetryAfter == 0 && len(d.Scopes) == 0 && d.Supported == nil {
		return dst
	}
	dst = append(dst, `,"data":{`...)
	empty := len(dst)
	name := func(name string) {
		if len(dst) > empty {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, name), ':')
	}
	if d.Reason != "" {
		name("reason")
		dst = appendText(dst, d.Reason)
	}
	if d.RequestID != "" {
		name("request_id")
		dst = appendText(dst, d.RequestID)
	}
	if d.RetryAfter != 0 {
		name("retry_after")
		dst = strconv.AppendInt(dst, int64(d.RetryAfter), 10)
	}
	if len(d.Scopes) > 0 {
		name("scopes")
		dst = appendTexts(dst, d.Scopes)
	}
	if d.Supported != nil {
		name("supported")
		dst = appendTexts(dst, d.Supported)
		name("requested")
		dst = appendText(dst, d.Requested)
	}
	return append(dst, '}')
}

// appendTexts appends an array of strings.
func appendTexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, text := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(dst, text)
	}
	return append(dst, ']')
}
