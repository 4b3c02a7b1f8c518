package extauthz

import (
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/extauthz/lists"
	"github.com/arbiter-gateway/arbiter/extauthz/session"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

const headerSessionID = "mcp-session-id"

// sealBodyMost is the most of an initialize answer in JSON that is read before
// its session id is given, in bytes.
const sealBodyMost = 256 << 10

// answer is what Guard reads of an upstream's answer.
type answer struct {
	status      int
	contentType string // media type only, lower case; "" when absent or odd
	plain       bool   // text in UTF-8, neither compressed nor in another charset
	length      int    // as Content-Length says; 0: not said
	sessionIDs  []string
	bodiless    bool
}

func readAnswer(in *procv3.HttpHeaders) answer {
	a := answer{bodiless: in.GetEndOfStream(), plain: true}
	for _, line := range in.GetHeaders().GetHeaders() {
		value := headerValue(line)
		switch line.GetKey() {
		case ":status":
			a.status, _ = strconv.Atoi(value) // 0 is judged as a fault
		case "content-type":
			// A type that cannot be read whole is none, neither JSON nor SSE: behind
			// a comma may stand another one, which a browser would believe.
			var params map[string]string
			var err error
			if a.contentType, params, err = mime.ParseMediaType(value); err != nil {
				a.contentType = ""
			}
			charset, given := params["charset"]
			a.plain = a.plain && (!given || strings.EqualFold(charset, "utf-8")) && !strings.Contains(value, "*") // RFC 2231
		case "content-encoding":
			a.plain = a.plain && strings.EqualFold(value, "identity")
		case "content-length":
			a.length, _ = strconv.Atoi(value) // what is wrong Envoy refuses
		case headerSessionID:
			a.sessionIDs = append(a.sessionIDs, value)
		}
	}
	return a
}

func headerValue(line *corev3.HeaderValue) string {
	if raw := line.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return line.GetValue()
}

// verdict is what becomes of an answer. The zero verdict is none.
type verdict int

const (
	verdictPass verdict = iota + 1
	verdictReplace
	verdictSealBody // read the JSON body, then give the session its id
	verdictSealNow  // a stream: give the id with the headers, then watch
	verdictWatch    // a live stream
	verdictAccepted // a notification on /rpc: 202, whatever it was
	verdictFilter   // JSON that may hold a list: read it whole, then filter it
	verdictFilterStream
)

// judge is contract section 1, "From the upstream", and section 3, points 1
// and 6. A refusal stands first.
func judge(mark string, n *note, a answer) verdict {
	json, stream := a.contentType == "application/json", a.contentType == "text/event-stream"
	success := a.status >= 200 && a.status < 300
	switch {
	case a.status < 200, a.status >= 300 && a.status < 400, a.status == 401, a.status == 407:
		return verdictReplace
	case mark == markList && (!a.plain || json && a.length > lists.Most):
		return verdictReplace // what cannot be read cannot be filtered
	case mark == markList && json && !a.bodiless: // an error too: it may hold a result
		return verdictFilter
	case !success && json:
		return verdictPass
	case !success:
		return verdictReplace // its status is kept
	case n.Transport == jsonrpc.RPC && !n.Due:
		return verdictAccepted
	case stream && n.Transport == jsonrpc.RPC:
		return verdictReplace
	case stream && mark == markSeal:
		return verdictSealNow
	case stream && mark == markList:
		return verdictFilterStream
	case stream:
		return verdictWatch
	case json && mark == markSeal && !a.bodiless:
		return verdictSealBody
	case mark == markSeal:
		return verdictReplace // initialize is answered with a result or an error
	case json:
		return verdictPass
	case a.bodiless && !n.Due:
		return verdictPass // a DELETE or a notification
	case a.status == 202 && a.contentType == "" && !n.Due:
		return verdictPass
	}
	return verdictReplace
}

// upstreamFault says what the caller sees of an answer that may not pass: 502,
// or its own status when that is an error which may.
func upstreamFault(status int) outward {
	out := outward{502, codeUpstream, "the server behind the gateway gave an answer that is not passed on"}
	if status >= 400 && status <= 599 && status != 401 && status != 407 {
		out.status = status
		out.text = "the server behind the gateway answered with status " + strconv.Itoa(status)
	}
	return out
}

func immediateResponse(code int, details string, body []byte, lines headerLines) *procv3.ImmediateResponse {
	headers := setHeader("content-type", "application/json")
	for _, line := range lines {
		headers.SetHeaders = append(headers.SetHeaders, setHeader(line[0], line[1]).SetHeaders...)
	}
	return &procv3.ImmediateResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(code)},
		Headers: headers,
		Body:    body,
		Details: details,
	}
}

var errNotWhole = errors.New("the answer is not one whole JSON message")

// initializeResult reports whether body is a JSON-RPC answer with a result.
// It is judged by the JSON itself: a buffer that was cut ends nowhere.
func initializeResult(body []byte) (bool, error) {
	if len(body) > sealBodyMost {
		return false, errNotWhole
	}
	var message struct {
		Result jsontext.Value `json:"result"`
		Error  jsontext.Value `json:"error"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return false, errNotWhole
	}
	if len(message.Result) > 0 && len(message.Error) > 0 {
		return false, errNotWhole
	}
	return len(message.Result) > 0 && message.Result.Kind() == '{', nil
}

// seal makes the session id of an initialize answer.
func (s *Server) seal(snap *Snapshot, n *note, a answer) (string, error) {
	now := s.revoked.Now()
	out := session.Session{
		Server: n.Server, Principal: n.Principal, Addr: n.Address, Version: n.Version,
		Issued: now, Expires: now.Add(snap.gateway.session),
	}
	switch len(a.sessionIDs) {
	case 0:
	case 1:
		out.Upstream, out.HasUpstream = a.sessionIDs[0], true
	default:
		return "", errors.New("the upstream gave more than one session id")
	}
	id, err := snap.keys.sealer.Seal(out)
	if err != nil {
		return "", fmt.Errorf("sealing: %w", err)
	}
	return id, nil
}

// stillLive asks again, for an answer, what Check asked for its request. A
// Check that lies too far back is none: the entry that would refuse it may
// have left the set.
func (s *Server) stillLive(n *note) (*Snapshot, error) {
	snap, err := s.live(n.Server, tokenKey(n.Credential).Hash(), n.expires())
	if err != nil {
		return nil, err
	}
	limit := snap.servers.find(n.Server).callLimit // live: there is one
	if !s.revoked.Known().Holds(n.Checked, s.revoked.Instant(), revocation.AnswerAge(limit)) {
		return nil, errStaleCheck
	}
	return snap, nil
}
