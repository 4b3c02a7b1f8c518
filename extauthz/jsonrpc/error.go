package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The codes that a body earns by itself.
const (
	CodeParse          = -32700 // JSON-RPC 2.0 section 5.1
	CodeInvalidRequest = -32600
	CodeInvalidParams  = -32602
	CodeTooLarge       = -31413 // ours
)

// The reasons of an Error: stable, for logs, metrics and data.reason.
const (
	ReasonEmpty             = "empty_body"
	ReasonBOM               = "byte_order_mark"
	ReasonUTF8              = "invalid_utf8"
	ReasonSurrogate         = "lone_surrogate"
	ReasonSyntax            = "invalid_json"
	ReasonTruncated         = "truncated_body"
	ReasonTrailing          = "trailing_data"
	ReasonDepth             = "too_deep"
	ReasonDuplicate         = "duplicate_key"
	ReasonNotObject         = "message_not_object"
	ReasonBatchRefused      = "batch_not_allowed"
	ReasonBatchEmpty        = "batch_empty"
	ReasonBatchSize         = "batch_too_long"
	ReasonBatchInitialize   = "initialize_in_batch"
	ReasonAmbiguousKey      = "ambiguous_key"
	ReasonVersion           = "jsonrpc_not_2_0"
	ReasonKind              = "message_kind_unclear"
	ReasonResponse          = "response_not_allowed"
	ReasonMethod            = "method_not_string"
	ReasonAmbiguousMethod   = "method_ambiguous"
	ReasonID                = "invalid_id"
	ReasonParams            = "params_not_structured"
	ReasonParamsArray       = "params_array_not_allowed"
	ReasonSelector          = "selector_missing"
	ReasonParam             = "param_of_wrong_type"
	ReasonAmbiguousArgument = "ambiguous_argument"
	ReasonTooLarge          = "body_too_large"
)

// Error is why a body was refused.
type Error struct {
	Code    int            // JSON-RPC error code
	Reason  string         // one of the Reason constants
	Message string         // for the caller: what is wrong and where, without any of its bytes
	ID      jsontext.Value // the request's id, where it is known beyond doubt; else nil
}

// Error says it for a log.
func (e *Error) Error() string {
	return "reading body: " + e.Message + " (" + e.Reason + ")"
}

// at is an error of the JSON text itself.
func at(reason, what string, offset int64) *Error {
	return &Error{Code: CodeParse, Reason: reason, Message: "parse error: " + what + " at byte " + strconv.FormatInt(offset, 10)}
}

func tooDeep(offset int64) *Error {
	return at(ReasonDepth, "more than 64 levels of objects and arrays", offset)
}

// syntax says what a fault of jsontext is, in words of ours: its own text may
// quote the body.
func (r *reader) syntax(err error) *Error {
	offset := r.dec.InputOffset()
	if fault, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset = fault.ByteOffset
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return at(ReasonDuplicate, "duplicate key", offset)
	case !utf8.Valid(r.body):
		return at(ReasonUTF8, "invalid UTF-8", offset)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return at(ReasonTruncated, "the body ends too early", offset)
	case surrogateAt(r.body, offset):
		return at(ReasonSurrogate, "lone surrogate", offset)
	}
	return at(ReasonSyntax, "invalid JSON", offset)
}

// surrogateAt tells whether the escape at offset is one of a surrogate.
func surrogateAt(body []byte, offset int64) bool {
	if offset < 0 || offset+4 > int64(len(body)) {
		return false
	}
	escape := bytes.ToLower(body[offset : offset+4])
	return string(escape[:3]) == `\ud` && escape[3] >= '8'
}
