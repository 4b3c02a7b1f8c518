package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/arbiter-gateway/arbiter/control"
	"github.com/arbiter-gateway/arbiter/control/policy"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

func bundleOf(text string) policies.Bundle {
	return policies.Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\n" + text + "\n")}}
}

// accept stores a policy as another process would, and returns its revision.
func (f *fixture) accept(b policies.Bundle) store.Policy {
	f.t.Helper()
	accepted, err := f.store.AddPolicy(f.t.Context(), store.Policy{Revision: b.Revision(), Origin: "test", Files: b.Files})
	if err != nil {
		f.t.Fatal(err)
	}
	return accepted
}

func (f *fixture) confirmed(revision int64) (revocation.Result, time.Duration, error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	result, err := f.running.Confirmed(ctx, revocation.Change{Revision: revision})
	return result, time.Since(began), err
}

func (f *fixture) get(path string) string {
	f.t.Helper()
	resp, err := f.admin.Get("http://arbiter" + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(body)
}

func TestPolicyIsPushedAndConfirmed(t *testing.T) {
	f := newFixture(t, nil)
	r := f.replica("one")
	if got := r.runs(); got != policies.Standard().Revision() {
		t.Errorf("at first %s is pushed", got)
	}
	b := bundleOf("allow := true")
	accepted := f.accept(b)
	result, _, err := f.confirmed(accepted.Settings)
	if err != nil || result.Confirmed != 1 || len(result.Refused) > 0 {
		t.Errorf("result %+v, %v", result, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := (&pb.Policy{Revision: b.Revision(), Files: b.Files}); !proto.Equal(r.policy, want) {
		t.Errorf("pushed %v, want %v", r.policy, want)
	}
}

// Contract, section 8: a replica that refused a policy says so at once, and the
// others are waited for all the same.
func TestRefusalIsToldAtOnce(t *testing.T) {
	f := newFixture(t, func(c *control.Config) { c.Lease = time.Minute })
	good, old := f.replica("good"), f.replica("old")
	before := old.runs()
	old.refuses(errors.New("policy.rego:3: rego_type_error: undefined function"))
	next := bundleOf("allow if input.call.method == \"ping\"")
	result, took, err := f.confirmed(f.accept(next).Settings)
	refused, ok := errors.AsType[*revocation.RefusedError](err)
	want := revocation.Refusal{Replica: "old", Reason: "policy.rego:3: rego_type_error: undefined function"}
	if !ok || len(refused.Refused) != 1 || refused.Refused[0] != want {
		t.Fatalf("error %v", err)
	}
	if result.Replicas != 2 || result.Confirmed != 1 || len(result.Refused) != 1 || len(result.Missing) > 0 || took > 15*time.Second {
		t.Errorf("result %+v after %v", result, took)
	}
	if good.runs() != next.Revision() || old.runs() != before {
		t.Errorf("good runs %s, old runs %s", good.runs(), old.runs())
	}
	if body := f.get("/readyz"); !strings.Contains(body, `old refused its configuration: policy.rego:3`) {
		t.Errorf("nobody is told: %s", body)
	}
	// What comes later does not make it current: it still runs the old policy.
	srv, err := f.store.CreateServer(t.Context(), newServer("later"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.confirmed(srv.Revision); !errors.As(err, &refused) {
		t.Errorf("a later change is confirmed: %v", err)
	}
	old.refuses(nil)
	result, _, err = f.confirmed(f.accept(bundleOf("allow := true")).Settings)
	if err != nil || result.Confirmed != 2 || old.runs() != bundleOf("allow := true").Revision() {
		t.Errorf("mended: %+v, %v, old runs %s", result, err, old.runs())
	}
}

// A replica that goes on without the newest policy loses its lease, also when
// other changes come that it takes.
func TestReplicaWithARefusedPolicyLosesItsLease(t *testing.T) {
	f := newFixture(t, nil)
	r := f.replica("old")
	r.refuses(errors.New("too new for me"))
	f.accept(bundleOf("allow := true"))
	f.eventually("the lease is over", func() bool {
		if _, err := f.store.CreateServer(t.Context(), newServer("s"+time.Now().String()), nil); err != nil {
			t.Fatal(err)
		}
		return !r.revoked.Alive()
	})
	r.refuses(nil)
	f.accept(bundleOf("allow := false"))
	f.eventually("it has a lease again", r.revoked.Alive)
}

// A control without a source pushes what another one has accepted.
func TestPolicyOfAnotherControl(t *testing.T) {
	f := newFixture(t, nil)
	r := f.replica("one")
	dir := t.TempDir()
	save := func(b policies.Bundle) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "policy.rego"), b.Files["policy.rego"], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(bundleOf("allow := true"))
	other, err := store.Open(t.Context(), store.Config{Path: filepath.Join(f.dir, "arbiter.db"), Key: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	source, err := policy.NewDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := policy.New(t.Context(), policy.Config{Store: other, Source: source, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	f.eventually("the directory's policy is pushed", func() bool { return r.runs() == bundleOf("allow := true").Revision() })
	save(bundleOf("allow := false"))
	f.eventually("and what it is edited to", func() bool { return r.runs() == bundleOf("allow := false").Revision() })
	if got := f.get("/metrics"); !strings.Contains(got, `arbiter_policy_accepted_timestamp_seconds{policy="`+r.runs()+`"}`) {
		t.Errorf("metrics do not tell which policy decides: %s", got)
	}
}

// Saving a file reaches a replica within a second, and a mistake changes nothing.
func TestEditIsLive(t *testing.T) {
	dir := t.TempDir()
	save := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "policy.rego"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(string(bundleOf("allow := true").Files["policy.rego"]))
	source, err := policy.NewDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *control.Config) { c.Policies = source })
	r := f.replica("one")
	began := time.Now()
	save(string(bundleOf("allow := false").Files["policy.rego"]))
	f.eventually("the edit is pushed", func() bool { return r.runs() == bundleOf("allow := false").Revision() })
	t.Logf("live after %v", time.Since(began))
	save("package policy\n\nallow := input.nobody\n")
	f.eventually("people are told", func() bool {
		var shown struct {
			Refused struct{ Faults []policies.Fault }
		}
		if err := json.Unmarshal([]byte(f.get("/api/v1/policy")), &shown); err != nil {
			t.Fatal(err)
		}
		faults := shown.Refused.Faults
		return len(faults) > 0 && strings.HasPrefix(faults[0].String(), "policy.rego:3: ")
	})
	if body := f.get("/readyz"); strings.Contains(body, "policy.rego") {
		t.Errorf("a mistake takes the gateway out of service: %s", body)
	}
	if r.runs() != bundleOf("allow := false").Revision() {
		t.Errorf("%s is pushed", r.runs())
	}
}

func TestWhatPoliciesSeeIsPushed(t *testing.T) {
	f := newFixture(t, func(c *control.Config) {
		c.Gateway.PolicyRequestHeaders, c.Gateway.PolicyUpstreamHeaders = []string{"x-team"}, []string{"x-tenant"}
	})
	r := f.replica("one")
	srv := newServer("one")
	srv.Grants, srv.PolicyData = jsontext.Value(`[{"tools":["a"]}]`), jsontext.Value(`{"hours":[9,17]}`)
	srv.RecordArguments, srv.ToolChanges = &store.RecordArguments{Mask: []string{"/a"}, Keep: time.Hour}, store.ToolChangesDeny
	made, err := f.store.CreateServer(t.Context(), srv, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.confirmed(made.Revision); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	got := r.server
	r.mu.Unlock()
	if string(got.GetGrants()) != string(srv.Grants) || string(got.GetPolicyData()) != string(srv.PolicyData) ||
		!got.GetDenyChangedTools() || strings.Join(got.GetRecordArguments().GetMask(), "") != "/a" {
		t.Errorf("pushed %v", got)
	}
	_, err = f.store.UpdateServer(t.Context(), made.ID, func(s *store.Server) error {
		s.Grants, s.PolicyData, s.RecordArguments, s.ToolChanges = nil, nil, nil, store.ToolChangesAlarm
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.eventually("nothing is left of it", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		got := r.server
		return len(got.GetGrants())+len(got.GetPolicyData()) == 0 && !got.GetDenyChangedTools() && got.GetRecordArguments() == nil
	})
	to := &follower{servers: map[string]*pb.Server{}}
	f.follow(to)
	f.eventually("the gateway's names are pushed", func() bool {
		to.mu.Lock()
		defer to.mu.Unlock()
		return len(to.gateways) > 0 && strings.Join(to.gateways[0].GetPolicyRequestHeaders(), "") == "x-team" &&
			strings.Join(to.gateways[0].GetPolicyUpstreamHeaders(), "") == "x-tenant"
	})
}

// The largest policy reaches a replica whole.
func TestLargestPolicyIsPushed(t *testing.T) {
	f := newFixture(t, func(c *control.Config) { c.Lease = time.Minute })
	r := f.replica("one")
	b := bundleOf("allow := true")
	b.Files["data.json"] = []byte(`{"padding": "` + strings.Repeat("x", policies.BundleMost-1000) + `"}`)
	if _, err := policies.Compile(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	result, took, err := f.confirmed(f.accept(b).Settings)
	if err != nil || result.Confirmed != 1 || r.runs() != b.Revision() {
		t.Errorf("result %+v, %v", result, err)
	}
	t.Logf("pushed within %v", took)
}
