package extauthz

import (
	"errors"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

var errRecordsFull = errors.New("the decision log takes no record and is required")

// heard is what a request's record has of the policy.
type heard struct {
	asked  bool
	answer *record.Result // the last one; nil: there was none
	took   time.Duration  // all questions together
}

// hear keeps what the policy said about one message, or about the request.
func (d *decision) hear(in *policies.Input, answer policies.Decision, err error, took time.Duration) {
	d.heard.asked, d.heard.answer, d.heard.took = true, nil, d.heard.took+took
	if err != nil {
		return
	}
	d.heard.answer = &record.Result{Decision: d.snap.policy.Recordable(answer)}
	if in.Call != nil && in.Call.Batch {
		d.heard.answer.Batch, d.heard.answer.Index = true, in.Call.BatchIndex
	}
}

// record is step 7: the decision is queued before its answer leaves.
func (s *Server) record(d *decision) error {
	out := s.recordOf(d)
	out.Outcome, out.Reason = record.Allow, string(reasonAllowed)
	if d.denied != nil {
		out.Outcome, out.Reason, out.Detail = record.Deny, string(d.denied.reason), d.denied.detail
		out.Status = d.status
		if answer := d.heard.answer; d.denied.reason == reasonPolicy && answer != nil && len(answer.Denials) > 0 {
			out.Detail = answer.Denials[0].Code
		}
	}
	if d.snap.gateway.recordsNeeded && s.records.broken.Load() {
		return errRecordsFull
	}
	if !s.records.offer(&out, d.values()) && d.snap.gateway.recordsNeeded {
		return errRecordsFull
	}
	s.metrics.decided(out.Outcome, Reason(out.Reason), out.CheckTime)
	return nil
}

// recordFault records a request that nobody could decide.
func (s *Server) recordFault(d *decision, err error) {
	out := s.recordOf(d)
	out.Outcome, out.Reason, out.Detail, out.Status = record.Error, "error", err.Error(), 503
	s.records.offer(&out, d.values())
	s.metrics.decided(out.Outcome, Reason(out.Reason), out.CheckTime)
}

// recordOf is all of a record but its outcome.
func (s *Server) recordOf(d *decision) record.Record {
	out := record.Record{
		Time: d.started, CheckTime: s.now().Sub(d.started), Replica: s.cfg.Replica,
		PolicyTime: d.heard.took, Result: d.heard.answer, Credential: d.who.ID, Session: d.session != nil,
	}
	if d.snap != nil {
		out.SettingsRevision = d.snap.Revision
	}
	if d.heard.asked {
		out.Time, out.Revision = d.input.Time, d.snap.policy.Revision()
	}
	if d.req != nil {
		out.ID, out.Peer = d.req.id, d.req.peer
		d.recordInput(&out.Input)
	}
	if d.allowed {
		out.Upstream = d.route.address.String()
	}
	return out
}

// recordInput is what was known of the question when it was decided.
func (d *decision) recordInput(out *record.Input) {
	out.Principal, out.Transport, out.Request = d.input.Principal, d.input.Transport, d.input.Request
	if out.Transport == "" { // it did not come to the policy
		out.Transport = transportMCP
		if d.req.transport == jsonrpc.RPC {
			out.Transport = transportRPC
		}
		out.Request = d.req.seen()
		if d.who.ID != "" {
			out.Principal = policies.Principal{Principal: d.who.Principal, Scopes: d.who.Scopes, Narrowed: d.who.Narrowed}
		}
	}
	if out.Server = (&record.Server{ID: d.req.serverID}); d.srv != nil {
		out.Server = d.srv.recorded()
	}
	d.recordCalls(out)
	if d.heard.asked {
		out.Action = d.input.Action
	} else if len(d.call.messages) > 0 && !allUpkeep(d.call.messages) {
		out.Action = policies.ActionCall
	}
}

// recordCalls are all messages of the request, also those that no policy is
// asked about.
func (d *decision) recordCalls(out *record.Input) {
	if len(d.call.messages) == 0 {
		return
	}
	calls := make([]record.Call, len(d.call.messages))
	for i, m := range d.call.messages {
		calls[i].Call, calls[i].Upkeep = callOf(m), upkeep(m)
		calls[i].ProtocolVersion = d.version()
		calls[i].Batch, calls[i].BatchIndex = d.call.batch, i
	}
	if d.call.batch {
		out.Calls = calls
		return
	}
	out.Call = &calls[0]
}

// recorded is what records show of the server, made when it is first needed.
func (s *server) recorded() *record.Server {
	if out := s.record.Load(); out != nil {
		return out
	}
	out := record.NewServer(&s.seen)
	s.record.Store(out)
	return out
}
