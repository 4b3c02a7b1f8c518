package policies

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const slowTests = `package policy_test

test_slow if count([1 | numbers.range(1, 100000)[_]; numbers.range(1, 100000)[_]]) == 0

test_slow_too if count([1 | numbers.range(1, 100000)[_]; numbers.range(1, 100000)[_]]) == 0

test_fast if true
`

func slowBundle() Bundle {
	return Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\nallow if true\n"), "slow_test.rego": []byte(slowTests)}}
}

func TestTestEndsSlowTests(t *testing.T) {
	report, err := test(t.Context(), slowBundle(), nil, times{each: 2 * time.Second, all: time.Minute})
	if err != nil || len(report.Passed) != 1 || len(report.Failed) != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, one := range report.Failed {
		if one.Message != "this test did not end within 2s" {
			t.Errorf("%+v", one)
		}
	}
	if _, late := errors.AsType[*LateError](report.Err()); !late {
		t.Errorf("what is only late is %T", report.Err())
	}
	report.Failed = append(report.Failed, TestResult{Name: "test_false"})
	if _, late := errors.AsType[*LateError](report.Err()); late {
		t.Error("a test that fails in any case is only late")
	}
}

// A suite that was cut off says nothing about the tests that never began.
func TestTestEndsSlowSuites(t *testing.T) {
	report, err := test(t.Context(), slowBundle(), nil, times{each: time.Minute, all: 100 * time.Millisecond})
	bad, ok := errors.AsType[*BundleError](err)
	if _, late := errors.AsType[*LateError](err); !late {
		t.Errorf("it is %T", err)
	}
	if !ok || !strings.Contains(bad.Error(), "slow_test.rego: the tests did not end within 100ms together") {
		t.Errorf("%+v, %v", report, err)
	}
}
