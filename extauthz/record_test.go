package extauthz_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// A caller must not lose its own record by a name that is cut inside a letter,
// nor make the log look broken, which stops everybody where it is required.
func TestRecordsKeepANameThatIsCutInsideALetter(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	name := strings.Repeat("x", 255) + "ëëë"
	f.mustCheck(rpcCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`"}}`))
	got := f.recorded(1)[0]
	if tool := got.Input.Call.Tool; tool != strings.Repeat("x", 255)+"…" || !got.Shortened {
		t.Errorf("the tool is %q, shortened %t", tool, got.Shortened)
	}
}

// A sink that hangs fills the queue, by number or by bytes; then no record is
// no allow. What was dropped is counted, and once the sink goes on, so do we.
func TestRequiredDecisionLogThatHangs(t *testing.T) {
	long := `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("y", 250) + `"}`
	for _, row := range []struct {
		name, body string
		most       int // queued
	}{
		{"short records", "", 8192}, // without a body: denied, and recorded all the same
		{"long records", "[" + strings.Repeat(long+",", 31) + long + "]", (8 << 20) / 5000},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := newServer()
			f := newFixture(t, srv)
			_, value := f.token(srv.GetId())
			settings := gateway()
			settings.DecisionLogRequired = true
			f.push(settings, nil, nil)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := f.xds.Applied(ctx, f.revision.Load()); err != nil {
				t.Fatal(err)
			}
			in := rpcCall(srv.GetId(), value, row.body)
			if row.body == "" {
				in = in.without("authorization")
			}
			f.records.mu.Lock() // the sink hangs
			answered := 0
			for range 2 * row.most { // one queue, and what the sink hangs with
				_, err := f.check(in)
				if err != nil && !errors.Is(f.faults.last(), policies.ErrDeadline) { // a busy machine's is recorded too
					break
				}
				if err == nil {
					answered++
				}
			}
			if err := f.faults.last(); !errors.Is(err, extauthz.ErrRecordsFull) {
				t.Errorf("it ended with %v", err)
			}
			f.records.mu.Unlock()
			if answered == 0 {
				t.Errorf("%d requests were answered without a record", answered)
			}
			if got := metric(t, f, "arbiter_records_dropped_total"); got == 0 {
				t.Error("nothing is counted as dropped")
			}
			f.eventually("requests pass again", func() bool { _, err := f.check(in); return err == nil })
			f.eventually("the queued ones are written", func() bool { return strings.Count(f.records.String(), "\n") >= answered })
		})
	}
}

// Control gets each record as one value, in frames that its gRPC takes. Of what
// is allowed it gets a share, and who used what it was not sent.
func TestRecordsReachControl(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	f.control.mu.Lock()
	f.control.keepsRecords = true
	f.control.mu.Unlock()
	id, value := f.token(srv.GetId())
	long := `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("y", 250) + `"}`
	in := rpcCall(srv.GetId(), value, "["+strings.Repeat(long+",", 31)+long+"]")
	const asked = 300
	for range asked {
		_, _ = f.check(in) // recorded, whatever a busy machine makes of it
	}
	count := 0
	f.eventually("control has what it gets", func() bool {
		f.control.mu.Lock()
		defer f.control.mu.Unlock()
		count = 0
		for _, batch := range f.control.records {
			count += len(batch)
		}
		return count+int(metric(t, f, "arbiter_records_unsent_total")) >= asked
	})
	f.control.mu.Lock()
	defer f.control.mu.Unlock()
	for _, batch := range f.control.records {
		size := 0
		for _, line := range batch {
			size += len(line)
			if !strings.HasPrefix(string(line), `{"decision_id":"request-1",`) || !strings.HasSuffix(string(line), "}") {
				t.Fatalf("a record is %s", line)
			}
		}
		if size > 1<<20+10_000 {
			t.Errorf("a batch of %d bytes", size)
		}
	}
	unsent := int(metric(t, f, "arbiter_records_unsent_total"))
	if count+unsent != asked || count == 0 {
		t.Errorf("%d records came and %d did not, for %d requests", count, unsent, asked)
	}
	if strings.Count(f.records.String(), "\n") != asked {
		t.Error("the local log does not have all")
	}
	if unsent > 0 && !f.control.used[id] {
		t.Error("control does not know that the token was used")
	}
}

// recorded waits for the first n records and reads them.
func (f *fixture) recorded(n int) []*record.Record {
	f.t.Helper()
	f.eventually("records are written", func() bool { return strings.Count(f.records.String(), "\n") >= n })
	var out []*record.Record
	for line := range strings.SplitSeq(strings.TrimSpace(f.records.String()), "\n") {
		one, err := record.Parse([]byte(line))
		if err != nil {
			f.t.Fatalf("%v: %s", err, line)
		}
		out = append(out, one)
	}
	return out
}

// metric is the value of a counter without labels.
func metric(t *testing.T, f *fixture, name string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
