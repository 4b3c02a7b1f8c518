// Package record is the decision record: one line of JSON that extauthz writes
// of each request, and that control reads again to explain the decision or to
// ask another policy the same.
//
// Everything that a caller had a hand in is bounded, quoted and valid UTF-8. No
// value of an argument is in a record: of arguments it has the shape, that is
// key paths, types and sizes. The values that a server's settings ask for go
// another way (Values).
package record

import (
	"strconv"
	"time"

	"github.com/arbiter-gateway/arbiter/policies"
)

// The outcomes.
const (
	Allow = "allow"
	Deny  = "deny"
	Error = "error"
)

// Path is the decision that a policy was asked for, in OPA's words.
const Path = "arbiter/decision"

// Most is how many bytes a record has at the most, without a line break.
const Most = 16 << 10

// Record is the decision record of one request. What is zero is not in it.
type Record struct {
	ID       string    // the request's, arbiter-request-id
	Time     time.Time // of the decision: what a policy saw as input.time
	Revision string    // of the policy that was asked; "": none was
	Input    Input
	Result   *Result // what the policy said; nil: it was not asked, or gave no answer

	CheckTime  time.Duration
	PolicyTime time.Duration // of that, all messages together; 0: it was not asked

	SettingsRevision int64 // of the settings that decided
	Replica          string
	Peer             string // ip:port of the caller
	Outcome          string // Allow, Deny or Error
	Reason           string
	Detail           string
	Status           int    // of a denial
	Credential       string // the token's id
	Session          bool
	Upstream         string

	// Shortened says that some text or list of the input is not whole. Set by
	// Append and Parse.
	Shortened bool
}

// Result is what a policy said.
type Result struct {
	policies.Decision

	Batch bool // it said so of one message of a batch
	Index int  // of that message, from 0
}

// Append appends the record as one line of JSON without its end, at most Most
// bytes. It is written by hand because there is one for each request.
func (r *Record) Append(dst []byte) []byte {
	l := line{dst: append(dst, '{'), start: len(dst)}
	l.text("decision_id", r.ID)
	l.name("timestamp")
	l.dst = append(l.dst, '"')
	l.dst = r.Time.UTC().AppendFormat(l.dst, time.RFC3339Nano)
	l.dst = append(l.dst, '"')
	if r.Revision != "" {
		l.text("path", Path)
		l.text("revision", r.Revision)
	}
	l.shortened = false
	l.input(&r.Input)
	r.Shortened = l.shortened
	if r.Result != nil {
		l.result(r.Result)
	}
	l.name("metrics")
	l.open('{')
	l.number("timer_check_ns", int64(r.CheckTime))
	if r.PolicyTime != 0 {
		l.number("timer_policy_ns", int64(r.PolicyTime))
	}
	l.close('}')
	l.ours(r)
	return append(l.dst, '}')
}

// ours appends what OPA has no names for.
func (l *line) ours(r *Record) {
	l.number("settings_revision", r.SettingsRevision)
	l.text("replica", r.Replica)
	l.given("peer", r.Peer)
	l.text("outcome", r.Outcome)
	l.text("reason", r.Reason)
	l.given("detail", r.Detail)
	if r.Status != 0 {
		l.number("status", int64(r.Status))
	}
	l.given("credential", r.Credential)
	l.truth("session", r.Session)
	l.given("upstream", r.Upstream)
	l.truth("shortened", r.Shortened)
}

// result appends what the policy said, by the names that policies have for it.
// Of headers it has the names: their values are for the upstream.
func (l *line) result(r *Result) {
	l.name("result")
	l.open('{')
	l.name("allow")
	l.dst = strconv.AppendBool(l.dst, r.Allow)
	l.truth("hide", r.Hide)
	if r.Batch {
		l.number("batch_index", int64(r.Index))
	}
	l.each("deny", len(r.Denials), func(i int) {
		l.open('{')
		l.text("code", r.Denials[i].Code)
		l.given("message", r.Denials[i].Text)
		l.close('}')
	})
	l.texts("scopes_needed", r.Scopes)
	l.each("headers", len(r.Headers), func(i int) { l.quote(r.Headers[i].Name) })
	l.each("limits", len(r.Limits), func(i int) {
		l.open('{')
		l.texts("by", r.Limits[i].By)
		l.name("rate")
		l.dst = strconv.AppendFloat(l.dst, r.Limits[i].Rate, 'g', -1, 64)
		l.number("burst", int64(r.Limits[i].Burst))
		l.close('}')
	})
	l.close('}')
}
