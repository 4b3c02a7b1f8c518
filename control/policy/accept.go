package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Refusal says what is wrong with a policy that was offered.
type Refusal struct {
	Origin string
	At     time.Time        // when it was first found
	Faults []policies.Fault // at least one
}

// faultsTold is how many faults are told at once; people mend the first ones.
const faultsTold = 10

func (r *Refusal) summary() string {
	text := r.Faults[0].String()
	if more := len(r.Faults) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// RefusedError says that a bundle is not accepted. Nothing was changed.
type RefusedError struct{ Report Report }

func (e *RefusedError) Error() string {
	return (&policies.BundleError{Faults: e.Report.Faults}).Error()
}

// SourceError says that policies come from a source, and not over the API.
type SourceError struct{ Origin string }

func (e *SourceError) Error() string { return "policies come from " + e.Origin }

// Apply accepts a policy that came over the API. It answers with a *SourceError
// when there is a source, and with a *RefusedError for what is at fault.
func (k *Keeper) Apply(ctx context.Context, b policies.Bundle, origin string) (store.Policy, error) {
	if k.cfg.Source != nil {
		return store.Policy{}, &SourceError{k.cfg.Source.Origin()}
	}
	return k.Accept(ctx, b, origin, 0)
}

// Accept judges a bundle and stores it; one that decides already, from the same
// origin, is not stored again. version is that of a signed bundle. The error is
// a *RefusedError when the bundle is at fault.
func (k *Keeper) Accept(ctx context.Context, b policies.Bundle, origin string, version int64) (store.Policy, error) {
	k.accepting.Lock()
	defer k.accepting.Unlock()
	before, err := k.cfg.Store.Policy(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Policy{}, err
	}
	revision := b.Revision()
	if err == nil && before.Revision == revision && before.Origin == origin && before.Version >= version {
		k.Decides(before)
		return before, nil
	}
	policy, report, err := k.judge(ctx, b)
	if err != nil {
		return store.Policy{}, err
	}
	if len(report.Faults) > 0 {
		k.metrics.refused.Inc()
		return store.Policy{}, &RefusedError{report}
	}
	accepted, err := k.cfg.Store.AddPolicy(ctx, store.Policy{Revision: revision, Origin: origin, Version: version, Files: b.Files})
	if errors.Is(err, store.ErrDowngrade) {
		k.metrics.refused.Inc()
		fault := policies.Fault{File: origin, Message: fmt.Sprintf("version %d is not newer than what was accepted before: a signed bundle is never replaced by an older one, or by another one of its version", version)}
		return store.Policy{}, &RefusedError{Report{Faults: []policies.Fault{fault}, Passed: report.Passed}}
	}
	if err != nil {
		return store.Policy{}, err
	}
	k.compiled.add(policy)
	k.Decides(accepted)
	k.cfg.Log.Info("policy accepted", "policy", revision, "origin", origin, "version", version, "revision", accepted.Settings, "tests", report.Passed)
	return accepted, nil
}

// read takes what the source offers. The error says why it is not taken.
func (k *Keeper) read(ctx context.Context) error {
	offer, err := k.cfg.Source.Read(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		k.metrics.refused.Inc()
		k.settle(k.refusal(err))
		return err
	}
	judged := fmt.Sprint(offer.Bundle.Revision(), " ", offer.Version)
	if judged != k.judged || !k.again.IsZero() && !k.cfg.Now().Before(k.again) {
		if err := k.take(ctx, offer, judged); err != nil {
			return err
		}
	}
	k.settle(k.verdict)
	if k.verdict != nil {
		return &policies.BundleError{Faults: k.verdict.Faults}
	}
	return nil
}

// What is refused for time alone is judged anew, since the machine may have been
// busy, and the policy take rights away. The pause between keeps the machine
// free for most of the time.
const (
	leastAgain = 5 * time.Second
	againAfter = 4 // times as long as judging took
)

// take judges an offer and keeps the verdict. The error is not the offer's
// fault: it is judged at the next reading.
func (k *Keeper) take(ctx context.Context, offer Offer, judged string) error {
	began := k.cfg.Now()
	_, err := k.Accept(ctx, offer.Bundle, k.cfg.Source.Origin(), offer.Version)
	if ctx.Err() != nil {
		return ctx.Err() // told to stop
	}
	refused, atFault := errors.AsType[*RefusedError](err)
	if err != nil && !atFault {
		k.settle(k.refusal(err))
		return err
	}
	k.judged, k.verdict, k.again = judged, nil, time.Time{}
	if atFault {
		k.verdict = k.refusal(err)
		if now := k.cfg.Now(); refused.Report.Late {
			k.again = now.Add(max(leastAgain, againAfter*now.Sub(began)))
		}
	}
	return nil
}

// refusal reads an error.
func (k *Keeper) refusal(err error) *Refusal {
	out := &Refusal{Origin: k.cfg.Source.Origin(), At: k.cfg.Now()}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		out.Faults = refused.Report.Faults
	} else if bundle, ok := errors.AsType[*policies.BundleError](err); ok {
		out.Faults = bundle.Faults
	} else {
		out.Faults = []policies.Fault{{File: out.Origin, Message: err.Error()}}
	}
	return out
}

// settle notes and tells what the source's last reading came to, once each time
// it is something else.
func (k *Keeper) settle(refused *Refusal) {
	k.mu.Lock()
	before, deciding := k.refused, k.deciding
	same := refused == nil && before == nil ||
		refused != nil && before != nil && reflect.DeepEqual(refused.Faults, before.Faults)
	if !same {
		k.refused = refused
	}
	k.mu.Unlock()
	switch {
	case same:
	case refused == nil:
		k.cfg.Log.Info("what was wrong with the policy is mended", "policy", deciding.Revision, "origin", deciding.Origin)
	case deciding.Revision == "":
		k.tell("policy refused", refused)
	default:
		k.tell("policy refused, the last good one goes on deciding", refused)
	}
}

// tell logs one line per fault.
func (k *Keeper) tell(what string, r *Refusal) {
	deciding := k.Deciding()
	for _, fault := range r.Faults[:min(len(r.Faults), faultsTold)] {
		k.cfg.Log.Error(what, "fault", fault.String(), "origin", r.Origin, "policy", deciding.Revision)
	}
	if more := len(r.Faults) - faultsTold; more > 0 {
		k.cfg.Log.Error(what, "further_faults", more, "origin", r.Origin)
	}
}
