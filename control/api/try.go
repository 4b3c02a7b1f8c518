package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

const (
	tryWithin      = 30 * time.Second
	tryUsual       = 1000 // records
	differenceMost = 1000 // that are listed; all are counted
)

// TriedPolicy says how a candidate would have answered what was asked before.
type TriedPolicy struct {
	Revision    string       `json:"revision"` // of the candidate
	Records     int          `json:"records"`  // that were looked at; all below are among them
	Same        int          `json:"same"`
	Different   int          `json:"different"`
	Differences []Difference `json:"differences"`  // newest first, at most 1000
	NotRecorded int          `json:"not_recorded"` // the answer depends on what was not kept, such as argument values
	NotAsked    int          `json:"not_asked"`    // no policy was asked, for one because it was refused before
	Undecidable int          `json:"undecidable"`  // their server is gone, or the record cannot be read
	ServerNow   int          `json:"server_now"`   // whose grants and data were put as they are now: those of then are not recorded
	Complete    bool         `json:"complete"`     // false: the time was over before the records were
}

// Difference is one record that the candidate would have answered otherwise.
type Difference struct {
	DecisionID string    `json:"decision_id"`
	Time       time.Time `json:"time"`
	Principal  string    `json:"principal,omitzero"` // kind:id
	Server     string    `json:"server,omitzero"`
	Method     string    `json:"method,omitzero"`
	Tool       string    `json:"tool,omitzero"`
	Recorded   Answer    `json:"recorded"`
	Candidate  Answer    `json:"candidate"`
}

// Answer is what a policy said.
type Answer struct {
	Outcome string         `json:"outcome"`       // allow, deny or error
	Hide    bool           `json:"hide,omitzero"` // answered as if there were no such thing
	Denials []PolicyDenial `json:"denials,omitempty"`
	Error   string         `json:"error,omitzero"`
}

// PolicyDenial is one reason of a policy.
type PolicyDenial struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// tryFields is the body of a try.
type tryFields struct {
	Files    filesField       `json:"files"`
	Decision optional[string] `json:"decision"`
	Last     optional[int]    `json:"last"`
}

func (f *tryFields) check() error {
	var found faults
	if f.Decision.there() && f.Last.there() {
		found.add("last", "only one of decision and last may be given")
	}
	if f.Last.there() && (f.Last.value < 1 || f.Last.value > store.KeptDecisions) {
		found.add("last", "must be 1 to %d", store.KeptDecisions)
	}
	if f.Decision.there() && f.Decision.value == "" {
		found.add("decision", "must not be empty")
	}
	return found.err()
}

// tryPolicy puts recorded questions to a candidate, or to the policy that
// decides.
func (a *api) tryPolicy(r *http.Request, body []byte) (reply, error) {
	var fields tryFields
	if err := decode(body, &fields); err != nil {
		return reply{}, err
	}
	if err := fields.check(); err != nil {
		return reply{}, err
	}
	free, err := a.alone()
	if err != nil {
		return reply{}, err
	}
	defer free()
	ctx, cancel := context.WithTimeout(r.Context(), tryWithin)
	defer cancel()
	tried, err := a.tried(ctx, fields.Files)
	if err != nil {
		return reply{}, err
	}
	t := &trial{
		store: a.cfg.Store, servers: serversSeen{store: a.cfg.Store}, policy: tried,
		out: TriedPolicy{Revision: tried.Revision(), Differences: []Difference{}},
	}
	if !fields.Decision.there() {
		last := tryUsual
		fields.Last.into(&last, tryUsual)
		err = t.askAll(ctx, last)
		return reply{body: t.out}, err
	}
	kept, err := a.kept(ctx, fields.Decision.value)
	if err != nil {
		return reply{}, err
	}
	if err = t.ask(ctx, kept); ctx.Err() != nil {
		return reply{body: t.out}, nil
	}
	t.out.Complete = true
	return reply{body: t.out}, err
}

// tried compiles the candidate; without files it is the policy that decides.
func (a *api) tried(ctx context.Context, files filesField) (*policies.Policy, error) {
	if !files.there() {
		return a.cfg.Policies.Policy(ctx, a.cfg.Policies.Deciding().Revision)
	}
	var found faults
	b := bundle(files, &found)
	if err := found.err(); err != nil {
		return nil, err
	}
	tried, err := policies.Compile(ctx, b)
	if refused, atFault := errors.AsType[*policies.BundleError](err); atFault {
		return nil, errPolicyRefused(refused.Faults)
	}
	return tried, err
}

// trial is one candidate on its way through the records.
type trial struct {
	store   *store.Store
	servers serversSeen
	policy  *policies.Policy
	out     TriedPolicy
}

// askAll goes through the newest records. When ctx ends it is not complete.
func (t *trial) askAll(ctx context.Context, last int) error {
	err := t.store.EachDecision(ctx, last, func(kept store.Decision) error { return t.ask(ctx, kept) })
	if t.out.Complete = err == nil; ctx.Err() != nil {
		return nil //nolint:nilerr // what was asked until then is the answer
	}
	return err
}

// ask puts one record to the candidate and counts what comes of it. The error
// is ctx's or the store's.
func (t *trial) ask(ctx context.Context, kept store.Decision) error {
	r, err := readRecord(ctx, &t.servers, kept)
	var candidate Answer
	var at question
	known := true
	if err == nil && len(r.questions) > 0 {
		candidate, at, known, err = r.decide(ctx, t.policy)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errShortened), !known:
		t.out.NotRecorded++
	case errors.Is(err, errServerGone), errors.Is(err, errUnreadable):
		t.out.Undecidable++
	case err != nil:
		return err
	case len(r.questions) == 0:
		t.out.NotAsked++
	default:
		t.compare(r, at, candidate)
	}
	t.out.Records++
	return nil
}

func (t *trial) compare(r *recorded, at question, candidate Answer) {
	if r.now {
		t.out.ServerNow++
	}
	if candidate.same(r.answer()) {
		t.out.Same++
		return
	}
	t.out.Different++
	if len(t.out.Differences) < differenceMost {
		t.out.Differences = append(t.out.Differences, differenceOf(r, at, candidate))
	}
}

func differenceOf(r *recorded, at question, candidate Answer) Difference {
	who := r.Input.Principal
	out := Difference{
		DecisionID: r.ID, Time: r.Time.UTC(), Principal: string(who.Kind) + ":" + who.Subject,
		Recorded: r.answer(), Candidate: candidate,
	}
	if r.Input.Server != nil {
		out.Server = r.Input.Server.ID
	}
	if call := at.input.Call; call != nil {
		out.Method, out.Tool = call.Method, call.Tool
	}
	return out
}
