package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Policy is the policy that decides.
type Policy struct {
	Revision   string          `json:"revision"`
	Origin     string          `json:"origin"`
	AcceptedAt time.Time       `json:"accepted_at"`
	Source     string          `json:"source,omitzero"` // directory or URL that policies come from; absent: the API
	Files      []PolicyFile    `json:"files"`
	Refused    *PolicyRefused  `json:"refused,omitzero"`
	Replicas   []PolicyReplica `json:"replicas"`
}

// PolicyRefused is what is wrong with what the source offers.
type PolicyRefused struct {
	Origin string           `json:"origin"`
	At     time.Time        `json:"at"`
	Faults []policies.Fault `json:"faults"`
}

// PolicyFile is one file of a policy.
type PolicyFile struct {
	Path string  `json:"path"`
	Size int     `json:"size"`          // bytes
	Text *string `json:"text,omitzero"` // when it was asked for, and is UTF-8
}

// PolicyReplica says whether a replica runs the policy.
type PolicyReplica struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
	Runs      bool   `json:"runs"`
	Error     string `json:"error,omitzero"` // what it refused last, and why
}

// ChangedPolicy answers a policy that was accepted.
type ChangedPolicy struct {
	Revision   string    `json:"revision"`
	AcceptedAt time.Time `json:"accepted_at"`
	Applied
	Revocation Revocation `json:"revocation"`
}

// CheckedPolicy answers a check.
type CheckedPolicy struct {
	Revision    string           `json:"revision"` // that it would have
	OK          bool             `json:"ok"`       // it would be accepted
	Faults      []policies.Fault `json:"faults"`   // of files, and tests that do not pass
	TestsPassed int              `json:"tests_passed"`
}

// originAPI is the origin of a policy that came over the API.
const originAPI = "API"

// checkWithin bounds how long a candidate is compiled and tested.
const checkWithin = 30 * time.Second

func (a *api) showPolicy(r *http.Request, _ []byte) (reply, error) {
	texts, err := wanted(r, "files")
	if err != nil {
		return reply{}, err
	}
	current, err := a.cfg.Store.Policy(r.Context())
	if err != nil {
		return reply{}, err
	}
	replicas, err := a.policyReplicas(r.Context(), current.Settings)
	if err != nil {
		return reply{}, err
	}
	out := Policy{
		Revision: current.Revision, Origin: current.Origin, AcceptedAt: current.AcceptedAt.UTC(),
		Source: a.cfg.Policies.Source(), Files: policyFiles(current.Files, texts), Replicas: replicas,
	}
	if refused := a.cfg.Policies.Refused(); refused != nil {
		out.Refused = &PolicyRefused{refused.Origin, refused.At.UTC(), refused.Faults}
	}
	return reply{body: out}, nil
}

// wanted reads a query parameter that is true or false.
func wanted(r *http.Request, key string) (bool, error) {
	switch query := r.URL.Query(); {
	case !query.Has(key), query.Get(key) == "false":
		return false, nil
	case query.Get(key) == "true":
		return true, nil
	}
	var found faults
	found.add(key, "must be true or false")
	return false, found.err()
}

func policyFiles(files map[string][]byte, texts bool) []PolicyFile {
	out := []PolicyFile{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		file := PolicyFile{Path: path, Size: len(files[path])}
		if texts && utf8.Valid(files[path]) {
			text := string(files[path])
			file.Text = &text
		}
		out = append(out, file)
	}
	return out
}

// policyReplicas says which replicas run the policy that was accepted at a
// revision of the settings.
func (a *api) policyReplicas(ctx context.Context, settings int64) ([]PolicyReplica, error) {
	status, err := a.cfg.Status(ctx)
	if err != nil {
		return nil, err
	}
	out := []PolicyReplica{}
	for _, r := range status.Replicas {
		out = append(out, PolicyReplica{
			Name: r.Name, Connected: r.Connected, Error: r.LastError,
			Runs: r.Connected && r.AppliedRevision >= settings && r.LastError == "",
		})
	}
	return out, nil
}

// policyFields is the body of a policy's change and check.
type policyFields struct {
	Files filesField `json:"files"`
}

func candidate(body []byte) (policies.Bundle, error) {
	var fields policyFields
	if err := decode(body, &fields); err != nil {
		return policies.Bundle{}, err
	}
	var found faults
	out := bundle(fields.Files, &found)
	return out, found.err()
}

func (a *api) checkPolicy(r *http.Request, body []byte) (reply, error) {
	b, err := candidate(body)
	if err != nil {
		return reply{}, err
	}
	free, err := a.alone()
	if err != nil {
		return reply{}, err
	}
	defer free()
	ctx, cancel := context.WithTimeout(r.Context(), checkWithin)
	defer cancel()
	report, err := a.cfg.Policies.Check(ctx, b)
	if err != nil {
		return reply{}, err
	}
	return reply{body: CheckedPolicy{
		Revision: b.Revision(), OK: len(report.Faults) == 0, Faults: report.Faults, TestsPassed: report.Passed,
	}}, nil
}

// alone admits one candidate at a time: each may take a core and much memory.
func (a *api) alone() (free func(), err error) {
	select {
	case a.trying <- struct{}{}:
		return func() { <-a.trying }, nil
	default:
		return nil, &failure{status: http.StatusTooManyRequests, detail: "another candidate is being checked or tried: ask again when it is done"}
	}
}

// replacePolicy makes a candidate the policy, and answers once every replica
// runs it, or can accept nothing any more.
func (a *api) replacePolicy(r *http.Request, body []byte) (reply, error) {
	b, err := candidate(body)
	if err != nil {
		return reply{}, err
	}
	asked := a.cfg.Now()
	accepted, err := a.cfg.Policies.Apply(r.Context(), b, originAPI)
	if err != nil {
		return reply{}, err
	}
	a.audit(r.Context(), "policy replaced", "policy", accepted.Revision, "files", len(b.Files), "revision", accepted.Settings)
	what := revocation.Key{Kind: revocation.KindPolicy, Key: "policy"}
	done, err := a.confirmed(r.Context(), revocation.Change{Revision: accepted.Settings, What: what, Asked: asked})
	if err != nil {
		return reply{}, err
	}
	return reply{body: ChangedPolicy{
		Revision: accepted.Revision, AcceptedAt: accepted.AcceptedAt.UTC(),
		Applied: a.applied(r.Context(), accepted.Settings), Revocation: done,
	}}, nil
}
