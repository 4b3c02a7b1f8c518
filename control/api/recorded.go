package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/mask"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// recorded is a decision record and what is needed to ask the same again.
type recorded struct {
	*record.Record

	questions []question // in their order; none when no policy was asked
	now       bool       // its server is put as it is now: the record does not have all of it
}

// question is one message of a record, as it can be put again.
type question struct {
	input *policies.Input
	index int  // of the message, from 0
	whole bool // with the values of its arguments, if it had any
	kept  bool // those were put back from what the server's record_arguments kept
}

// errServerGone says that what a policy could read of a server is known neither
// from the record nor from the server.
var errServerGone = errors.New("the server is gone, and with it the grants and data that the policy could read")

// errUnreadable says that a record is not as extauthz writes them.
var errUnreadable = errors.New("the record cannot be read")

// errShortened says that a record does not have the whole question.
var errShortened = errors.New("a part of the question was too long for the record")

// readRecord reads a record that a replica wrote. The error is errShortened or
// errServerGone when it is a good one that cannot be asked again, which is given
// back all the same; errUnreadable when it is none; else it is the store's.
func readRecord(ctx context.Context, from *serversSeen, kept store.Decision) (*recorded, error) {
	parsed, err := record.Parse(kept.JSON)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	out := &recorded{Record: parsed}
	if parsed.Revision == "" {
		return out, nil
	}
	if parsed.Shortened {
		return out, errShortened
	}
	if seen := parsed.Input.Server; seen != nil && seen.Digest != "" {
		current, err := from.server(ctx, seen.ID)
		if err != nil {
			return out, err
		}
		out.now = record.Digest(current) != seen.Digest
		seen.Seen.Grants, seen.Seen.Data = current.Grants, current.Data
	}
	values := valuesOf(kept.Arguments, len(parsed.Input.Calls))
	for _, call := range parsed.Asked() {
		out.questions = append(out.questions, questionOf(parsed, call, values))
	}
	if len(out.questions) == 0 {
		out.questions = []question{{input: parsed.Question(nil), whole: true}}
	}
	return out, nil
}

// valuesOf reads the kept arguments, one item for each message; nil where they
// were not kept, or not whole.
func valuesOf(text []byte, calls int) []jsontext.Value {
	var out []jsontext.Value
	if len(text) == 0 || json.Unmarshal(text, &out) != nil || len(out) != max(calls, 1) {
		return nil
	}
	return out
}

// questionOf puts the kept arguments of a message back, unless something in
// them was masked.
func questionOf(r *record.Record, call *record.Call, values []jsontext.Value) question {
	out := question{input: r.Question(call), index: call.BatchIndex, whole: call.ArgumentsShape == nil && call.ParamsShape == nil}
	if out.whole || out.index >= len(values) {
		return out
	}
	value := values[out.index]
	if kind := value.Kind(); kind == 'n' || masked(value) {
		return out
	}
	if call.ParamsShape != nil {
		call.Params = value
	} else {
		call.Arguments = value
	}
	out.whole, out.kept = true, true
	return out
}

// tell is what an answer may say of a decision on this question. To read kept
// values is a right of its own, which the policy that is asked cannot give: a
// candidate can put them into whatever it says.
func (q *question) tell(policy *policies.Policy, d policies.Decision) policies.Decision {
	if !q.kept {
		return d
	}
	return policy.Recordable(d)
}

// masked reports whether a value holds what stands for a masked one, or for one
// that was too long.
func masked(value jsontext.Value) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return false
		}
		if token.Kind() == '"' && (token.String() == mask.Blank || token.String() == record.TooLong) {
			return true
		}
	}
}

// answer is what the policy said then.
func (r *recorded) answer() Answer {
	if r.Result == nil {
		return Answer{Outcome: record.Error, Error: r.Detail}
	}
	return answerOf(r.Result.Decision)
}

func answerOf(d policies.Decision) Answer {
	out := Answer{Outcome: record.Deny, Hide: d.Hide}
	if d.Allow {
		out.Outcome = record.Allow
	}
	for _, denial := range d.Denials {
		out.Denials = append(out.Denials, PolicyDenial{denial.Code, denial.Text})
	}
	return out
}

// same reports whether two answers do the same to a caller: a denial's text may
// change, its code is what programs read. Of codes that were not recorded
// nothing is said.
func (a Answer) same(b Answer) bool {
	if a.Outcome != b.Outcome || a.Hide != b.Hide {
		return false
	}
	return a.hasUnrecorded() || b.hasUnrecorded() ||
		slices.EqualFunc(a.Denials, b.Denials, func(x, y PolicyDenial) bool { return x.Code == y.Code })
}

func (a Answer) hasUnrecorded() bool {
	return slices.ContainsFunc(a.Denials, func(d PolicyDenial) bool { return d.Code == policies.CodeNotRecorded })
}

// decide puts all messages, as Check does: the first that is not allowed is the
// answer. known is false where that depends on values that were not kept.
func (r *recorded) decide(ctx context.Context, policy *policies.Policy) (out Answer, at question, known bool, err error) {
	for _, at = range r.questions {
		out, known, err = at.decide(ctx, policy)
		if err != nil || !known || out.Outcome != record.Allow {
			break
		}
	}
	return out, at, known, err
}

// decide puts one message. The error is ctx's.
func (q *question) decide(ctx context.Context, policy *policies.Policy) (out Answer, known bool, err error) {
	var d policies.Decision
	if q.whole || !policy.Reads().Arguments {
		d, err = policy.Decide(ctx, q.input)
		known = true
	} else if d, known, err = policy.DecideWithout(ctx, q.input); err != nil {
		err = nil // of a rule that may not matter: nothing is known
	}
	switch {
	case ctx.Err() != nil:
		return out, false, ctx.Err()
	case err != nil:
		return Answer{Outcome: record.Error, Error: err.Error()}, true, nil //nolint:nilerr // it is the answer
	}
	return answerOf(q.tell(policy, d)), known, nil
}

// serversSeen are servers as policies see them now.
type serversSeen struct {
	store *store.Store
	known map[identity.ServerID]*policies.Server // nil: it is gone
}

const serversKept = 1000

func (s *serversSeen) server(ctx context.Context, text string) (*policies.Server, error) {
	id, err := identity.ParseServerID(text)
	if err != nil {
		return nil, errServerGone
	}
	seen, known := s.known[id]
	if !known {
		srv, err := s.store.Server(ctx, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			seen = &policies.Server{ID: id, Name: srv.Name, Labels: srv.Labels, Grants: srv.Grants, Data: srv.PolicyData}
		}
		if s.known == nil || len(s.known) >= serversKept {
			s.known = map[identity.ServerID]*policies.Server{}
		}
		s.known[id] = seen
	}
	if seen == nil {
		return nil, errServerGone
	}
	return seen, nil
}
