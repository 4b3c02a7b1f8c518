package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Problem is an RFC 9457 problem document. Its type is always "about:blank":
// the status says what kind it is, Errors which fields are at fault.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitzero"`
	Errors []Fault `json:"errors,omitempty"`
	// Faults are those of a policy that was refused, and its tests that did not pass.
	Faults []policies.Fault `json:"faults,omitempty"`
}

// Fault is one field that cannot be as given. Field is its path in the body,
// "limits.max_body", or the name of a query parameter.
type Fault struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error is the problem on one line.
func (p *Problem) Error() string {
	if len(p.Errors) == 0 {
		if p.Detail == "" {
			return strings.ToLower(p.Title)
		}
		return strings.Join(p.sentences(), "; ")
	}
	var parts []string
	for _, f := range p.Errors {
		parts = append(parts, f.Field+": "+f.Detail)
	}
	return strings.Join(parts, "; ")
}

func (p *Problem) sentences() []string {
	out := []string{p.Detail}
	for _, fault := range p.Faults {
		out = append(out, fault.String())
	}
	return out
}

// failure is an endpoint's refusal.
type failure struct {
	status int
	detail string
	faults []Fault
	policy []policies.Fault
}

func (f *failure) Error() string { return f.detail }

// faults collects what is wrong with a request, so that all of it is said at once.
type faults []Fault

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, Fault{field, fmt.Sprintf(format, args...)})
}

// err is nil without faults.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &failure{status: http.StatusBadRequest, detail: "the request has faults; nothing was changed", faults: f}
}

// Refusals that several endpoints share.
var (
	errNoCaller = &failure{status: http.StatusForbidden, detail: "it is not known who is calling"}
	errNoServer = &failure{status: http.StatusNotFound, detail: "there is no such server"}
	errNoToken  = &failure{status: http.StatusNotFound, detail: "there is no such token at this server"}
)

// errUnconfirmed says that a change is stored and that not all of the fleet is
// known to have it: a replica does not take it, control is being stopped, or it
// took longer than it can.
func errUnconfirmed(result revocation.Result) *failure {
	if len(result.Refused) > 0 {
		var who []string
		for _, r := range result.Refused {
			who = append(who, r.Replica+": "+r.Reason)
		}
		return &failure{status: http.StatusServiceUnavailable, detail: fmt.Sprintf(
			"the change is stored, and confirmed by %d of %d replicas, but others refused it and go on as before until their leases are over, then refuse everything: %s",
			result.Confirmed, result.Replicas, strings.Join(who, "; "))}
	}
	where := "everywhere"
	if len(result.Missing) > 0 {
		where = "at " + strings.Join(result.Missing, ", ")
	}
	return &failure{status: http.StatusServiceUnavailable, detail: "the change is stored, but it is not known that what it ends is ended " + where + ": see doctor"}
}

func errPolicyRefused(faults []policies.Fault) *failure {
	return &failure{status: http.StatusUnprocessableEntity, detail: "the policy was refused; nothing was changed", policy: faults}
}

// failureOf is the one table from errors to statuses. What it does not know is
// the gateway's own fault, and its text stays in the log.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if refused, ok := errors.AsType[*policy.RefusedError](err); ok {
		return errPolicyRefused(refused.Report.Faults)
	}
	if source, ok := errors.AsType[*policy.SourceError](err); ok {
		return &failure{status: http.StatusConflict, detail: source.Error() + ": change them there; nothing was changed"}
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &failure{status: http.StatusNotFound, detail: "there is no such thing"}
	case errors.Is(err, store.ErrNameTaken):
		return &failure{status: http.StatusConflict, detail: "nothing was changed", faults: []Fault{{"name", "another server has it"}}}
	case errors.Is(err, store.ErrUncertain):
		return &failure{status: http.StatusServiceUnavailable, detail: "the disk did not confirm the change; whether it was stored is not known: look again"}
	case errors.Is(err, store.ErrUnavailable):
		return &failure{status: http.StatusServiceUnavailable, detail: "the database cannot be used now; nothing was changed"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &failure{status: http.StatusServiceUnavailable, detail: "this took too long; nothing was changed"}
	default:
		return &failure{status: http.StatusInternalServerError, detail: "the gateway failed; its log says why"}
	}
}

// notFound gives a missing thing its own words.
func notFound(err error, what *failure) error {
	if errors.Is(err, store.ErrNotFound) {
		return what
	}
	return err
}

func (a *api) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	f := failureOf(err)
	if f.status >= http.StatusInternalServerError {
		a.cfg.Log.ErrorContext(r.Context(), "api request failed", "route", r.Pattern, "error", err)
	} else {
		a.cfg.Log.DebugContext(r.Context(), "api request refused", "route", r.Pattern, slog.Int("status", f.status))
	}
	body, err := encode(&Problem{
		Type: "about:blank", Title: http.StatusText(f.status), Status: f.status, Detail: f.detail, Errors: f.faults,
		Faults: f.policy,
	})
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	write(w, f.status, "application/problem+json", body)
}
