package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The standard policy follows the program; what somebody chose stays.
func TestStandardPolicyIsThatOfTheProgram(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stored *store.Policy
		want   string
	}{
		{"nothing stored", nil, policies.Standard().Revision()},
		{"an earlier program's", &store.Policy{Revision: "old", Origin: policy.OriginStandard}, policies.Standard().Revision()},
		{"somebody's own", &store.Policy{Revision: bundleOf(allowAll).Revision(), Origin: "api", Files: bundleOf(allowAll).Files}, bundleOf(allowAll).Revision()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t)
			if tt.stored != nil {
				if _, err := s.AddPolicy(t.Context(), *tt.stored); err != nil {
					t.Fatal(err)
				}
			}
			f, err := try(t, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			stored, err := s.Policy(t.Context())
			if err != nil || stored.Revision != tt.want || f.Deciding().Revision != tt.want {
				t.Errorf("stored %s, deciding %+v, %v, want %s", stored.Revision, f.Deciding(), err, tt.want)
			}
			if err := f.Fault(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A policy that an earlier program took and this one cannot use decides nothing,
// and the start goes on, so that another one can be brought.
func TestUnusableStoredPolicyIsAProblem(t *testing.T) {
	s := openStore(t)
	if _, err := s.AddPolicy(t.Context(), store.Policy{Revision: bundleOf(broken).Revision(), Origin: "api", Files: bundleOf(broken).Files}); err != nil {
		t.Fatal(err)
	}
	f, err := try(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Fault(); err == nil || !strings.Contains(err.Error(), "policy.rego:4") {
		t.Errorf("fault %v", err)
	}
	if f.log.lines("level=ERROR", "policy.rego:4", "every call is refused") == 0 {
		t.Errorf("nobody is told:\n%s", f.log)
	}
	if _, err := f.Apply(t.Context(), bundleOf(allowOne), "api"); err != nil || f.Fault() != nil {
		t.Errorf("mended: %v, fault %v", err, f.Fault())
	}
}

func TestApply(t *testing.T) {
	s := openStore(t)
	f, err := try(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := f.Apply(t.Context(), bundleOf(allowAll), "api")
	if err != nil || first.Revision != bundleOf(allowAll).Revision() || first.Settings == 0 {
		t.Fatalf("accepted %+v, %v", first, err)
	}
	if again, err := f.Apply(t.Context(), bundleOf(allowAll), "api"); err != nil || again.Settings != first.Settings {
		t.Errorf("the same again is revision %d, %v; it was %d", again.Settings, err, first.Settings)
	}
	tested := bundleOf(allowAll)
	tested.Files["policy_test.rego"] = []byte(untrue)
	for _, tt := range []struct {
		name  string
		b     policies.Bundle
		fault string
	}{
		{"an input that there is not", bundleOf(broken), "policy.rego:4"},
		{"a test that fails", tested, "policy_test.rego:5"},
		{"no syntax", bundleOf("package policy\n\nallow {"), "policy.rego:3"},
		{"nothing", policies.Bundle{}, "no Rego"},
		{"more than may be read", bundleOf(allowAll + strings.Repeat("# more\n", policies.BundleMost/7)), "bytes"},
		{"the network", bundleOf("package policy\n\nallow if http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"}).status_code == 200\n"), "policy.rego:3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := f.metric("arbiter_policy_refused_total")
			_, err := f.Apply(t.Context(), tt.b, "api")
			refused, ok := errors.AsType[*policy.RefusedError](err)
			if !ok || !strings.Contains(err.Error(), tt.fault) || len(refused.Report.Faults) == 0 {
				t.Fatalf("error %v, want %q", err, tt.fault)
			}
			report, err := f.Check(t.Context(), tt.b)
			if err != nil || fmt.Sprint(report.Faults) != fmt.Sprint(refused.Report.Faults) {
				t.Errorf("Check says %v, %v; Apply said %v", report.Faults, err, refused.Report.Faults)
			}
			if stored, err := s.Policy(t.Context()); err != nil || stored.Settings != first.Settings {
				t.Errorf("stored %s at %d, %v", stored.Revision, stored.Settings, err)
			}
			if got := f.metric("arbiter_policy_refused_total"); got != before+1 {
				t.Errorf("%v refusals are counted, want one", got-before)
			}
		})
	}
	if f.metric("arbiter_policy_accepted_timestamp_seconds") < 1e9 {
		t.Error("when it was accepted is not told")
	}
}

func TestCheckCountsTests(t *testing.T) {
	f, err := try(t, openStore(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := f.Check(t.Context(), policies.Standard()); err != nil || len(report.Faults) > 0 || report.Passed == 0 {
		t.Errorf("report %+v, %v", report, err)
	}
}

func TestApplyIsForThoseWithoutASource(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.rego", allowAll)
	f, err := try(t, openStore(t), directory(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Apply(t.Context(), bundleOf(allowOne), "api")
	if source, ok := errors.AsType[*policy.SourceError](err); !ok || source.Origin != "directory "+dir || f.Source() != source.Origin {
		t.Errorf("error %v", err)
	}
}

// What decided before can still be asked, and what is not kept cannot.
func TestPolicyByRevision(t *testing.T) {
	f, err := try(t, openStore(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	var revisions []string
	for i := range 8 {
		accepted, err := f.Apply(t.Context(), bundleOf(fmt.Sprintf("package policy\n\nallow if input.call.tool == \"t%d\"\n", i)), "api")
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, accepted.Revision)
	}
	for range 2 {
		for _, revision := range revisions {
			if p, err := f.Policy(t.Context(), revision); err != nil || p.Revision() != revision {
				t.Errorf("%s: %v", revision, err)
			}
		}
	}
	if _, err := f.Policy(t.Context(), "unknown"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
}

// A control hears of what another one of the same store has accepted.
func TestDecidesNeverGoesBack(t *testing.T) {
	f, err := try(t, openStore(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	older := f.Deciding()
	newer, err := f.Apply(t.Context(), bundleOf(allowOne), "api")
	if err != nil {
		t.Fatal(err)
	}
	f.Decides(older)
	if got := f.Deciding(); got.Revision != newer.Revision || got.Files != nil {
		t.Errorf("deciding %+v", got)
	}
}

// A bundle that replicas would compile for too long would cost them their leases.
func TestSlowToCompileIsRefused(t *testing.T) {
	s := openStore(t)
	f, err := try(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	hasty, err := policy.New(t.Context(), policy.Config{Store: s, Registry: newRegistry(), Log: f.slog(), CompileMost: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hasty.Apply(t.Context(), bundleOf(allowOne), "api"); err == nil || !strings.Contains(err.Error(), "compiling took") {
		t.Errorf("error %v", err)
	}
}

func TestGivingUpAccepting(t *testing.T) {
	f, err := try(t, openStore(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Apply(ctx, bundleOf(allowOne), "api"); err == nil {
		t.Error("accepted for somebody who has gone")
	}
	if got := f.Deciding().Revision; got != policies.Standard().Revision() {
		t.Errorf("%s decides", got)
	}
}

// spoken is a source that offers what the test says.
type spoken struct {
	next chan func() (policy.Offer, error)
	now  func() (policy.Offer, error)
}

func (s *spoken) Origin() string { return "somewhere" }

func (s *spoken) Read(context.Context) (policy.Offer, error) { return s.now() }

func (s *spoken) Wait(ctx context.Context) {
	select {
	case s.now = <-s.next:
	case <-ctx.Done():
	}
}

// However often it is read, a fault is told when it comes, and once.
func TestFaultsAreToldOnce(t *testing.T) {
	offer := func(text string) func() (policy.Offer, error) {
		return func() (policy.Offer, error) { return policy.Offer{Bundle: bundleOf(text)}, nil }
	}
	away := func() (policy.Offer, error) { return policy.Offer{}, errors.New("nobody is there") }
	s := &spoken{next: make(chan func() (policy.Offer, error)), now: offer(allowAll)}
	f := run(t, openStore(t), s)
	for _, tt := range []struct {
		now   func() (policy.Offer, error)
		fault string // part of it; "": none
		told  int    // how often it was told by then
	}{
		{offer(broken), "policy.rego:4", 1},
		{offer(broken), "policy.rego:4", 1},
		{away, "nobody is there", 1},
		{away, "nobody is there", 1},
		{offer(broken), "policy.rego:4", 2},
		{offer(allowAll), "", 1},
		{away, "nobody is there", 2},
		{offer(allowAll), "", 2},
	} {
		for range 2 { // when the second one is taken up the first one is settled
			s.next <- tt.now
		}
		s.next <- tt.now
		refused := f.Refused()
		if (refused != nil) != (tt.fault != "") || refused != nil && !strings.Contains(refused.Faults[0].String(), tt.fault) {
			t.Fatalf("refused %+v, want %q", refused, tt.fault)
		}
		what := "policy refused"
		if tt.fault == "" {
			what = "mended"
		}
		if got := f.log.lines(what, tt.fault); got != tt.told {
			t.Errorf("%q was told %d times, want %d:\n%s", tt.fault, got, tt.told, f.log)
		}
	}
	f.decides(allowAll)
}
