package extauthz

import (
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/policies"
)

// question is what Check asked the policy about a request, so that Guard can
// ask it again: for each item of a list, and of a live stream whenever the
// policy or its data changes. It stands beside the note, as metaQuestion, and
// is trusted like it. The server is not in it: Guard takes the newest one.
type question struct {
	policy   string         // revision of the one that allowed it
	seen     uint64         // number of what that one saw of the server
	asked    policies.Input // without Server, Call and Time
	version  string         // of MCP, "" when nobody said one
	calls    []policies.Call
	withheld withheld
}

// withheld says what was too long to be carried.
type withheld byte

const (
	withheldNothing withheld = iota
	withheldArguments
	withheldCalls // which messages were asked about is not known
)

// Most of what a question carries, in bytes.
const (
	questionMost  = 8 << 10 // of its text
	argumentsMost = 2 << 10 // of all arguments and params together
)

var (
	errQuestion     = errors.New("check's question is not one")
	errQuestionLong = errors.New("the question for guard is too long")
)

// question is the text of what was asked, "" when nobody asks it again.
func (d *decision) question() (string, error) {
	if !d.askedAgain() {
		return "", nil
	}
	q := question{policy: d.snap.policy.Revision(), seen: d.srv.seenAs, asked: d.input, version: d.version(), calls: d.calls}
	q.asked.Server, q.asked.Call = nil, nil
	if q.arguments() > argumentsMost {
		q.withheld = withheldArguments
	}
	for ; q.withheld <= withheldCalls; q.withheld++ {
		var space, encoded [1536]byte
		text := base64.RawURLEncoding.AppendEncode(encoded[:0], q.append(space[:0]))
		if len(text) <= questionMost {
			return string(text), nil
		}
	}
	return "", errQuestionLong
}

// askedAgain reports an answer that may hold a list or be a live stream, to a
// request that the policy was asked about.
func (d *decision) askedAgain() bool {
	if d.req.transport == jsonrpc.RPC {
		return !d.nothingDue() && listing(d.req.transport, d.call.messages)
	}
	return d.reused || d.req.method == http.MethodGet || d.req.method == http.MethodPost && !allUpkeep(d.call.messages)
}

// arguments is how many bytes of arguments and params there are.
func (q *question) arguments() (n int) {
	for i := range q.calls {
		n += len(q.calls[i].Arguments) + len(q.calls[i].Params)
	}
	return n
}

// inputs is what was asked, one for each message, of the server as it is now.
// There are none when the calls were not carried: nobody can tell then (askAgain).
func (q *question) inputs(srv *server, now time.Time) []policies.Input {
	if q.withheld == withheldCalls {
		return nil
	}
	if q.asked.Action == policies.ActionOpenStream {
		return []policies.Input{q.base(srv, now)}
	}
	out := make([]policies.Input, len(q.calls))
	for i := range q.calls {
		out[i] = q.base(srv, now)
		out[i].Call = &q.calls[i]
	}
	return out
}

// answeredBy reports that nothing has changed since Check asked, but the time.
func (q *question) answeredBy(policy *policies.Policy, srv *server) bool {
	return q.policy == policy.Revision() && q.seen == srv.seenAs
}

// base is what everything that is asked for this request has in common.
func (q *question) base(srv *server, now time.Time) policies.Input {
	in := q.asked
	in.Server, in.Time = &srv.seen, now
	return in
}
