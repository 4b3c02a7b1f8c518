package extauthz_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/extauthz"
)

// TestRecordIsWhatItsTagsSay compares Append with package json: the same bytes.
func TestRecordIsWhatItsTagsSay(t *testing.T) {
	texts := rapid.OneOf(
		rapid.Just(""), rapid.StringN(0, 30, -1),
		rapid.SampledFrom([]string{`a"b\c`, "a\nb\x00\x7f", "<&>", "\u2028", "Zoë", "😀"}),
	)
	called := rapid.Custom(func(t *rapid.T) extauthz.Called {
		return extauthz.Called{Method: texts.Draw(t, "method"), Tool: texts.Draw(t, "tool")}
	})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) string { return texts.Draw(t, name) }
		number := func(name string) int64 { return rapid.Int64().Draw(t, name) }
		record := extauthz.Record{
			RequestID: draw("request_id"), Timestamp: time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC(),
			Revision: number("revision"), Replica: draw("replica"), Outcome: draw("outcome"), Reason: draw("reason"), Detail: draw("detail"),
			Status: rapid.IntRange(0, 599).Draw(t, "status"), Server: draw("server"), Route: draw("route"), HTTPMethod: draw("http_method"),
			Source: draw("source"), Principal: draw("principal"), Name: draw("principal_name"), Credential: draw("credential"),
			Session: rapid.Bool().Draw(t, "session"), Upstream: draw("upstream"), Duration: number("duration_us"),
		}
		if rapid.Bool().Draw(t, "has calls") {
			record.Calls = rapid.SliceOfN(called, 0, 4).Draw(t, "calls")
		}
		want, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(record.Append([]byte("before"))); got != "before"+string(want) {
			t.Errorf("appended %s\nwant %s", got, want)
		}
	})
}

// A caller must not lose its own record by a name that is cut inside a letter,
// nor make the log look broken, which stops everybody where it is required.
func TestRecordsKeepANameThatIsCutInsideALetter(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	name := strings.Repeat("x", 255) + "ëëë"
	f.mustCheck(rpcCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`"}}`))
	f.eventually("a record", func() bool { return strings.HasSuffix(f.records.String(), "}\n") })
	var record extauthz.Record
	if err := json.Unmarshal([]byte(f.records.String()), &record); err != nil {
		t.Fatal(err)
	}
	if got := record.Calls[0].Tool; got != strings.Repeat("x", 255)+"\ufffd…" {
		t.Errorf("the tool is %q", got)
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
		{"long records", "[" + strings.Repeat(long+",", 31) + long + "]", (8 << 20) / 8000},
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
			for ; answered <= 2*row.most; answered++ { // one queue, and what the sink hangs with
				if _, err := f.check(in); err != nil {
					break
				}
			}
			f.records.mu.Unlock()
			if answered == 0 || answered > 2*row.most {
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
		f.mustCheck(in)
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
			if !strings.HasPrefix(string(line), `{"request_id":"request-1",`) || !strings.HasSuffix(string(line), "}") {
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
