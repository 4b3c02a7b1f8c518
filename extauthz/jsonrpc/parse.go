package jsonrpc

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Parse reads a body under the given rules. An error is always an *Error. The
// raw values of the messages are parts of body, which nobody may change while
// they are in use.
func Parse(body []byte, rules Rules) (Body, error) {
	if len(body) > HardLimit {
		return Body{}, tooLarge(HardLimit, nil)
	}
	parsed, err := parse(body, rules)
	if limit := rules.MaxBytes; limit > 0 && len(body) > limit {
		return Body{}, tooLarge(limit, echo(parsed, err))
	}
	if err != nil {
		return Body{}, err
	}
	return parsed, nil
}

// tooLarge says that a body has more bytes than it may have.
func tooLarge(limit int, id jsontext.Value) *Error {
	return &Error{
		Code: CodeTooLarge, Reason: ReasonTooLarge, ID: id,
		Message: "the body is larger than " + strconv.Itoa(limit) + " bytes",
	}
}

// echo is the id to put on an answer to what was read.
func echo(body Body, err error) jsontext.Value {
	if fault, ok := errors.AsType[*Error](err); ok {
		return fault.ID
	}
	if body.Batch || body.Messages[0].Kind != Request {
		return nil
	}
	return body.Messages[0].ID
}

func parse(body []byte, rules Rules) (Body, error) {
	switch {
	case len(bytes.Trim(body, " \t\r\n")) == 0:
		return Body{}, at(ReasonEmpty, "the body is empty", 0)
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return Body{}, at(ReasonBOM, "byte order mark", 0)
	}
	r := newReader(body, rules)
	defer r.release()
	parsed, err := r.read()
	if err != nil {
		return Body{}, err
	}
	if err := r.end(); err != nil {
		return Body{}, err
	}
	if r.fault != nil {
		r.fault.ID = echo(parsed, nil)
		return Body{}, r.fault
	}
	return parsed, nil
}

// read reads a message, or a batch where that is allowed.
func (r *reader) read() (Body, error) {
	if r.dec.PeekKind() == '[' {
		if !r.rules.Batch {
			return Body{}, r.invalid(ReasonBatchRefused, "a batch is not allowed here")
		}
		return r.batch()
	}
	message, err := r.message()
	if err != nil {
		return Body{}, err
	}
	return Body{Messages: []Message{message}}, nil
}

// batch reads 1 to MaxBatch messages.
func (r *reader) batch() (Body, error) {
	start, err := r.enter()
	if err != nil {
		return Body{}, err
	}
	body := Body{Batch: true}
	for r.more() {
		if len(body.Messages) == MaxBatch {
			return Body{}, r.invalid(ReasonBatchSize, "a batch of more than 32 messages")
		}
		r.ordinal = len(body.Messages) + 1
		message, err := r.message()
		if err != nil {
			return Body{}, err
		}
		if r.rules.Transport == MCP && message.Method == initialize {
			return Body{}, r.invalid(ReasonBatchInitialize, "initialize in a batch")
		}
		body.Messages = append(body.Messages, message)
	}
	if _, err := r.leave(start); err != nil {
		return Body{}, err
	}
	r.ordinal = 0
	if len(body.Messages) == 0 {
		return Body{}, r.invalid(ReasonBatchEmpty, "a batch without messages")
	}
	return body, nil
}

// draft is what stood under the protocol's keys of a message; nil: no such key.
type draft struct {
	version, id, method, result, fault jsontext.Value
	hasParams                          bool
	params                             params
}

// message reads one message.
func (r *reader) message() (Message, error) {
	if r.dec.PeekKind() != '{' {
		if _, err := r.value(); err != nil {
			return Message{}, err
		}
		return Message{}, r.invalid(ReasonNotObject, "a message must be an object")
	}
	var d draft
	_, ambiguous, err := r.object(messageKeys, func(key string) error { return r.member(&d, key) })
	if err != nil {
		return Message{}, err
	}
	if ambiguous {
		return Message{}, r.invalid(ReasonAmbiguousKey, "a key of the message "+almost)
	}
	return r.check(&d)
}

const almost = "differs from one of the protocol's only by case or by invisible characters"

// member reads the value of one key of a message.
func (r *reader) member(d *draft, key string) (err error) {
	switch key {
	case "jsonrpc":
		d.version, err = r.value()
	case "id":
		d.id, err = r.value()
	case "method":
		d.method, err = r.value()
	case "result":
		d.result, err = r.value()
	case "error":
		d.fault, err = r.value()
	case "params":
		d.hasParams = true
		err = r.params(&d.params)
	default:
		_, err = r.value()
	}
	return err
}

// check turns a draft into a message: an ordered list of refusals.
func (r *reader) check(d *draft) (Message, error) {
	if !says(d.version, versionText) {
		return Message{}, r.invalid(ReasonVersion, `jsonrpc must be "2.0"`)
	}
	kind, err := r.kind(d)
	if err != nil {
		return Message{}, err
	}
	m := Message{Kind: kind, ID: d.id}
	if kind != Notification && !r.validID(d.id) {
		return Message{}, r.invalid(ReasonID, r.idRule())
	}
	if kind == Response {
		return m, nil
	}
	method, ok := text(d.method)
	if !ok || method == "" {
		return Message{}, r.invalid(ReasonMethod, "method must be a non-empty string")
	}
	if ambiguousMethod(method, r.folding[:0]) {
		return Message{}, r.invalid(ReasonAmbiguousMethod, "method "+almost)
	}
	m.Method = method
	r.fit(&m, &d.params)
	return m, nil
}

// kind tells what the keys of a message make of it.
func (r *reader) kind(d *draft) (Kind, error) {
	answer := d.result != nil || d.fault != nil
	switch {
	case d.method != nil && answer:
		return 0, r.invalid(ReasonKind, "method beside result or error")
	case d.method != nil && d.id != nil:
		return Request, nil
	case d.method != nil:
		return Notification, nil
	case !answer:
		return 0, r.invalid(ReasonMethod, "method is missing")
	case !r.rules.Responses || r.rules.Transport != MCP:
		return 0, r.invalid(ReasonResponse, "a response is not allowed here")
	case d.id == nil || d.hasParams || d.result != nil && d.fault != nil:
		return 0, r.invalid(ReasonKind, "a response has an id and either result or error")
	case d.fault != nil && d.fault.Kind() != '{':
		return 0, r.invalid(ReasonKind, "error must be an object")
	}
	return Response, nil
}

// validID tells whether id is a string or, on /mcp, an integer that every JSON
// reader keeps as it is; 1.0 and 1e2 are no integers there. On /rpc any number.
func (r *reader) validID(id jsontext.Value) bool {
	if len(id) > MaxID {
		return false
	}
	switch id.Kind() {
	case '"':
		return true
	case '0':
		if r.rules.Transport == RPC {
			return true
		}
		n, err := strconv.ParseInt(string(id), 10, 64)
		return err == nil && -MaxSafeID <= n && n <= MaxSafeID
	}
	return false
}

func (r *reader) idRule() string {
	if r.rules.Transport == RPC {
		return "id must be a string or a number, of at most 1024 bytes"
	}
	return "id must be a string of at most 1024 bytes or an integer between -(2^53-1) and 2^53-1"
}

// text is what a JSON string says; not ok when raw is none.
func text(raw jsontext.Value) (string, bool) {
	if raw.Kind() != '"' {
		return "", false
	}
	return string(unquoted(nil, raw)), true
}

// says tells whether raw is the JSON string of want.
func says(raw jsontext.Value, want string) bool {
	return raw.Kind() == '"' && string(unquoted(nil, raw)) == want
}
