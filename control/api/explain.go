package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// Explanation says why a request was allowed, denied or failed.
type Explanation struct {
	Decision jsontext.Value `json:"decision"` // the record, as it was written
	Step     string         `json:"step"`     // of the request that decided: address, credential, message, session, policy, limit, upstream or gateway
	Means    string         `json:"means"`
	Help     string         `json:"help,omitzero"`
	// Policy is absent where none was asked.
	Policy *ExplainedPolicy `json:"policy,omitzero"`
}

// ExplainedPolicy is the policy that was asked, and how it came to its answer.
type ExplainedPolicy struct {
	Revision string `json:"revision"`
	Known    bool   `json:"known"`   // false: it is not kept any more, and nothing below is there
	Current  bool   `json:"current"` // it still decides
	// ServerNow says that it was asked again with the server's grants and data as
	// they are now: those of then were too long for the record.
	ServerNow bool `json:"server_now"`
	// Message is which message of a batch is explained, from 0: the first that is
	// not allowed.
	Message int `json:"message,omitzero"`
	// Answer is what the policy says when it is asked again; Same, whether it
	// said so then.
	Answer *Answer  `json:"answer,omitzero"`
	Same   bool     `json:"same"`
	Scopes []string `json:"scopes_needed,omitempty"`
	// Why are the rules that hold, those that would have allowed it, and what
	// was not recorded.
	Why *policies.Explanation `json:"why,omitzero"`
	// Problem says why it could not be asked again.
	Problem string `json:"problem,omitzero"`
}

const reasonPolicyDenied = "policy_denied"

// explainDecision puts a recorded request to the policy that decided it.
func (a *api) explainDecision(r *http.Request, _ []byte) (reply, error) {
	kept, err := a.kept(r.Context(), r.PathValue("id"))
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), tryWithin)
	defer cancel()
	rec, err := readRecord(ctx, &serversSeen{store: a.cfg.Store}, kept)
	if rec == nil {
		return reply{}, err
	}
	out := Explanation{Decision: kept.JSON}
	out.Step, out.Means, out.Help = rec.explained()
	switch {
	case rec.Revision == "":
	case err != nil && !errors.Is(err, errShortened) && !errors.Is(err, errServerGone):
		return reply{}, err
	default:
		out.Policy, err = a.explainedPolicy(ctx, rec, err)
	}
	return reply{body: out}, err
}

// explained says what a record means, without asking the policy again.
func (r *recorded) explained() (step, means, help string) {
	asked := r.Revision != ""
	switch {
	case r.Outcome == record.Error && asked && r.Result == nil:
		return stepPolicy, "the policy gave no clear answer, so the request was refused with 503: " + r.Detail, "mend the policy; `arbiter policy try` shows whether another one answers"
	case r.Outcome == record.Error && asked && strings.HasPrefix(r.Detail, "policy "+r.Revision+": "): // an unknown header, two values of one
		return stepPolicy, "what the policy answered cannot be done, so the request was refused with 503: " + r.Detail, "mend the policy; headers for upstreams begin with x-arbiter-policy-, or stand in the setting policy_upstream_headers"
	case r.Outcome == record.Error:
		return stepGateway, "the gateway could not decide, so the request was refused with 503: " + r.Detail, "see its log, and `arbiter doctor`"
	case r.Outcome == record.Deny && r.Reason == reasonPolicyDenied:
		return stepPolicy, "the policy denied it", ""
	case r.Outcome == record.Allow && asked:
		return stepPolicy, "the policy allowed it", ""
	case r.Outcome == record.Allow:
		return stepSession, "no policy was asked: messages that keep a session going need a live credential and their session only", ""
	}
	if text, known := reasonTexts[r.Reason]; known {
		return text.step, text.means, text.help
	}
	return stepGateway, "it was refused: " + r.Reason, "see docs/operations.md"
}

// explainedPolicy asks the policy that decided once more, and how it comes to
// its answer, unless it cannot be asked the same again.
func (a *api) explainedPolicy(ctx context.Context, r *recorded, unlike error) (*ExplainedPolicy, error) {
	out := &ExplainedPolicy{
		Revision: r.Revision, Current: r.Revision == a.cfg.Policies.Deciding().Revision, ServerNow: r.now,
	}
	policy, err := a.cfg.Policies.Policy(ctx, r.Revision)
	bundle, atFault := errors.AsType[*policies.BundleError](err)
	switch {
	case errors.Is(err, store.ErrNotFound):
		out.Problem = "the policy of this revision is not kept any more"
		return out, nil
	case atFault:
		out.Problem = "this program cannot use the policy of this revision: " + bundle.Error()
		return out, nil
	case err != nil:
		return nil, err
	}
	if out.Known = true; unlike != nil {
		out.Problem = unlike.Error()
		return out, nil //nolint:nilerr // it is the answer
	}
	return out, out.explain(ctx, policy, r)
}

// explain asks until a message is not allowed, and keeps that one's answer.
func (e *ExplainedPolicy) explain(ctx context.Context, policy *policies.Policy, r *recorded) error {
	for _, q := range r.questions {
		why, err := policy.Explain(ctx, q.input, q.whole)
		if err != nil {
			return err
		}
		e.Message, e.Why, e.Answer = q.index, &why, nil
		if why.NotRecorded {
			e.Problem = "the answer depends on values of arguments that were not recorded: see record_arguments of the server"
			return nil
		}
		decision := q.tell(policy, why.Decision)
		answer := answerOf(decision)
		if why.Fault != nil {
			answer = Answer{Outcome: record.Error, Error: why.Fault.String()}
		}
		e.Answer, e.Scopes = &answer, decision.Scopes
		if answer.Outcome != record.Allow {
			break
		}
	}
	e.Same = e.Answer != nil && e.Answer.same(r.answer())
	return nil
}

// kept finds a record.
func (a *api) kept(ctx context.Context, id string) (store.Decision, error) {
	missing := &failure{
		status: http.StatusNotFound,
		detail: "there is no decision with this id among the newest 10,000 that control was sent; the id stands in the answer's arbiter-request-id, and decisions.jsonl has them all",
	}
	if id == "" || len(id) > maxName || checkText(id, maxName) != nil {
		return store.Decision{}, missing
	}
	found, err := a.cfg.Store.Decision(ctx, id)
	return found, notFound(err, missing)
}
