package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arbiter-gateway/arbiter/policies"
)

// Report is what was found when a bundle was judged.
type Report struct {
	Faults []policies.Fault // why it is refused; none: it would be accepted
	Passed int              // tests of its own that passed
	Late   bool             // all faults are of time: on a machine that is less busy it may pass
}

// Check judges a bundle and changes nothing, nor does anything wait for it: its
// caller bounds how many are judged at a time. The error is not the bundle's
// fault.
func (k *Keeper) Check(ctx context.Context, b policies.Bundle) (Report, error) {
	_, report, err := k.judge(ctx, b)
	return report, err
}

// judge compiles a bundle and runs its tests. Without faults there is a policy.
func (k *Keeper) judge(ctx context.Context, b policies.Bundle) (*policies.Policy, Report, error) {
	policy, took, err := k.compile(ctx, b)
	if err != nil {
		return nil, faultsIn(err), otherThan(err)
	}
	if took > k.cfg.CompileMost {
		return nil, tooSlow(k.cfg.CompileMost), nil
	}
	tests, err := policies.Test(ctx, b)
	if err == nil {
		err = tests.Err()
	}
	report := faultsIn(err)
	report.Passed = len(tests.Passed)
	return policy, report, otherThan(err)
}

// compile also says how long it takes; a machine that was busy gets another try.
func (k *Keeper) compile(ctx context.Context, b policies.Bundle) (policy *policies.Policy, took time.Duration, err error) {
	for range compileTries {
		began := time.Now()
		policy, err = policies.Compile(ctx, b)
		took = time.Since(began)
		if err != nil || took <= k.cfg.CompileMost || took > compileTries*k.cfg.CompileMost {
			break
		}
	}
	return policy, took, err
}

const compileTries = 3

// tooSlow does not say how long it took: the same fault is told once.
func tooSlow(most time.Duration) Report {
	return Report{Late: true, Faults: []policies.Fault{{
		File: ".", Message: fmt.Sprintf("compiling took longer than %v, a sixth of the lease: a replica that compiles for longer would lose it, and refuse everything meanwhile",
			most.Round(time.Millisecond)),
	}}}
}

func faultsIn(err error) Report {
	if bundle, atFault := errors.AsType[*policies.BundleError](err); atFault {
		_, late := errors.AsType[*policies.LateError](err)
		return Report{Faults: bundle.Faults, Late: late}
	}
	return Report{}
}

// otherThan is an error that is not the bundle's fault.
func otherThan(err error) error {
	if _, atFault := errors.AsType[*policies.BundleError](err); atFault {
		return nil
	}
	return err
}
