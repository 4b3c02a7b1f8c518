package extauthz_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/arbiter-gateway/arbiter/internal/mask"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
	"github.com/arbiter-gateway/arbiter/xds"
)

// decides pushes a policy of one file and waits until extauthz runs it.
func (f *fixture) decides(source string) {
	f.t.Helper()
	bundle := policies.Bundle{Files: map[string][]byte{"policy.rego": []byte(source)}}
	err := f.xds.SetFleet(f.revision.Add(1), []xds.Resource{{
		Name: xds.Name{Type: xds.TypePolicy, Name: "policy"}, Body: &pb.Policy{Revision: bundle.Revision(), Files: bundle.Files},
	}}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.xds.Applied(ctx, f.revision.Load()); err != nil {
		f.t.Fatal(err)
	}
}

// as asks Check under an id, and says how it came out.
func (f *fixture) as(id string, r request) string {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-arbiter-stream", id, "x-arbiter-peer-address", "192.0.2.1:5555"))
	out, err := ask(ctx, f.server, r.proto())
	switch {
	case err != nil:
		return record.Error
	case out.GetDeniedResponse() != nil:
		return record.Deny
	}
	return record.Allow
}

// counted are the decisions that the metrics have, by outcome and reason.
func (f *fixture) counted() map[string]int {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]int{}
	for _, family := range families {
		if family.GetName() != "arbiter_decisions_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			out[labels["outcome"]+" "+labels["reason"]] = int(m.GetCounter().GetValue())
		}
	}
	return out
}

const tool = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"q":"CANARY"}}}`

// mix are requests of many kinds, each with what it comes to.
func mix(server, token, narrow, other string) map[string]request {
	call := rpcCall(server, token, tool)
	get := request{method: "GET", path: "/servers/" + server + "/mcp", header: [][2]string{{"authorization", "Bearer " + token}, {"accept", "text/event-stream"}}}
	return map[string]request{
		"allow allowed":                     call,
		"allow allowed batch":               rpcCall(server, token, `[`+tool+`,{"jsonrpc":"2.0","method":"ping"}]`),
		"allow allowed upkeep":              rpcCall(server, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`),
		"allow allowed unknown":             rpcCall(server, token, `{"jsonrpc":"2.0","id":1,"method":"vendor/do","params":{"x":"CANARY"}}`),
		"allow allowed opener":              mcpCall(server, token, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`),
		"deny policy_denied":                rpcCall(server, narrow, tool),
		"deny policy_denied batch":          rpcCall(server, narrow, `[{"jsonrpc":"2.0","id":1,"method":"tools/list"},`+tool+`]`),
		"deny no_credential":                call.without("authorization"),
		"deny credential_malformed":         call.without("authorization").with("authorization", "Bearer CANARY"),
		"deny credential_of_another_server": rpcCall(server, other, tool),
		"deny query_refused":                {method: "POST", path: call.path + "?CANARY", header: call.header, body: tool},
		"deny host_refused":                 {path: call.path, host: "canary\"\n\u2028.example", header: call.header, body: tool},
		"deny origin_refused":               call.with("origin", "https://CANARY.example"),
		"deny media_type_refused":           call.without("content-type").with("content-type", "text/CANARY"),
		"deny body_refused":                 rpcCall(server, token, `{"jsonrpc":"2.0","CANARY":`),
		"deny method_not_allowed":           {method: "CANARY", path: call.path, header: call.header},
		"deny session_missing":              get,
		"deny session_unknown":              get.with("mcp-session-id", "CANARY"),
		"deny session_missing call":         mcpCall(server, token, tool),
	}
}

// TestMetricsEqualTheLog: every request has one record, which can be found by
// its id, and the metrics count the same.
func TestMetricsEqualTheLog(t *testing.T) {
	srv, another := newServer(), newServer()
	f := newFixture(t, srv, another)
	_, token := f.token(srv.GetId())
	_, narrow := f.token(srv.GetId(), "mcp:connect")
	_, other := f.token(another.GetId())
	outcomes := map[string]string{}
	for name, in := range mix(srv.GetId(), token, narrow, other) {
		outcomes[name] = f.as(name, in)
	}
	f.control.mu.Lock()
	f.control.broken = errors.New("the database cannot be used")
	f.control.mu.Unlock()
	_, unknown := f.token(srv.GetId())
	outcomes["error error"] = f.as("error error", rpcCall(srv.GetId(), unknown, tool))
	records := f.recorded(len(outcomes))
	if len(records) != len(outcomes) {
		t.Errorf("%d records of %d requests", len(records), len(outcomes))
	}
	logged := map[string]int{}
	for _, r := range records {
		logged[r.Outcome+" "+r.Reason]++
		want := strings.Fields(r.ID)
		if r.Outcome != outcomes[r.ID] || r.Outcome != want[0] && r.Outcome != record.Error || r.Reason != want[1] {
			t.Errorf("%s was answered with %s and is recorded as %s %s %s", r.ID, outcomes[r.ID], r.Outcome, r.Reason, r.Detail)
		}
		delete(outcomes, r.ID)
	}
	if len(outcomes) > 0 {
		t.Errorf("without a record: %v", outcomes)
	}
	if counted := f.counted(); !maps.Equal(counted, logged) {
		t.Errorf("counted %v\nlogged  %v", counted, logged)
	}
}

// A record has what the policy saw: asked the same again, it says the same. And
// it holds nothing of what a caller or a server keeps secret.
func TestRecordsCanBeAskedAgain(t *testing.T) {
	srv, another := newServer(func(s *pb.Server) {
		s.Labels = map[string]string{"team": "blue"}
		s.Grants = []byte(`[{"principal":{},"tools":["sea*"]}]`)
	}), newServer()
	f := newFixture(t, srv, another)
	_, token := f.token(srv.GetId())
	_, narrow := f.token(srv.GetId(), "mcp:connect")
	_, other := f.token(another.GetId())
	requests := mix(srv.GetId(), token, narrow, other)
	for name, in := range requests {
		f.as(name, in)
	}
	policy, err := policies.Compile(t.Context(), policies.Standard())
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, r := range f.recorded(len(requests)) {
		if upkeep := strings.Contains(r.ID, "upkeep"); upkeep != (r.Input.Call != nil && r.Input.Call.Upkeep) || upkeep && r.Input.Action != "" {
			t.Errorf("%s: upkeep is recorded as %+v of %q", r.ID, r.Input.Call, r.Input.Action)
		}
		if strings.HasPrefix(r.ID, "allow") && strings.Contains(r.ID, "batch") && (len(r.Asked()) != 1 || len(r.Input.Calls) != 2) {
			t.Errorf("%s: %d of %d messages were asked about", r.ID, len(r.Asked()), len(r.Input.Calls))
		}
		if r.Revision == "" {
			if r.Result != nil || r.PolicyTime != 0 {
				t.Errorf("%s: a result of nobody: %+v", r.ID, r)
			}
			continue
		}
		calls := r.Asked()
		if len(calls) == 0 {
			calls = append(calls, nil)
		}
		var answer policies.Decision
		for _, c := range calls {
			if answer, err = policy.Decide(t.Context(), r.Question(c)); err != nil {
				t.Fatal(err)
			}
			if !answer.Allow {
				break
			}
		}
		if r.Result == nil || fmt.Sprint(answer) != fmt.Sprint(r.Result.Decision) || r.Shortened || r.PolicyTime <= 0 || r.Revision != policy.Revision() {
			t.Errorf("%s: the record has %+v, asked again it is %+v", r.ID, r.Result, answer)
		}
		asked++
	}
	if asked != 6 {
		t.Errorf("%d records can be asked again", asked)
	}
	log := f.records.String()
	for _, secret := range []string{"CANARY", token, narrow, other} {
		if strings.Contains(log, secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

// The time of a record is that which the policy saw.
func TestRecordsHaveThePolicysTime(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	f.decides("package policy\n" + `deny contains {"code": "now", "message": sprintf("%d", [input.time])}`)
	f.as("1", rpcCall(srv.GetId(), value, tool))
	r := f.recorded(1)[0]
	if r.Result == nil || r.Result.Denials[0].Text != strconv.FormatInt(r.Time.UnixNano(), 10) {
		t.Errorf("at %d the policy said %+v", r.Time.UnixNano(), r.Result)
	}
}

// What a policy composes of arguments is not recorded, nor what it fails with.
func TestNoValueComesIntoARecordByThePolicy(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	in := rpcCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"q":"canary","n":"4711x"}}}`)
	for i, row := range []struct{ rule, want string }{
		{`deny contains {"code": "wrong", "message": sprintf("not %s", [input.call.arguments.q])}`, `"deny":[{"code":"wrong"}]`},
		{`deny contains {"code": input.call.arguments.q, "message": "constant"}`, `"deny":[{"code":"not_recorded","message":"constant"}]`},
		{`scopes_needed contains concat(":", ["x", input.call.arguments.q])`, `"result":{"allow":false,"deny":[{"code":"no_rule",`},
		{`allow if to_number(input.call.arguments.n) > 1`, `"detail":"policy `},
	} {
		f.decides("package policy\n" + row.rule)
		if got := f.as(fmt.Sprint(i), in); got == record.Allow {
			t.Errorf("%s: allowed", row.rule)
		}
		f.recorded(i + 1)
		line := slices.Collect(strings.SplitSeq(strings.TrimSpace(f.records.String()), "\n"))[i]
		if strings.Contains(line, "canary") || strings.Contains(line, "4711") || !strings.Contains(line, row.want) {
			t.Errorf("%s: %s\nwant %s", row.rule, line, row.want)
		}
	}
}

// Requests made to break the log.
func TestHostileRecords(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	keys := &strings.Builder{}
	for i := range 10_000 {
		fmt.Fprintf(keys, `"k%d":"CANARY",`, i)
	}
	called := func(name, arguments string) request {
		return rpcCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":`+name+`,"arguments":`+arguments+`}}`)
	}
	rows := []request{
		called(`"a\"b\\c\n{\"decision_id\":\"x\"}\u0000\u2028"`, `{}`),
		called(`"`+strings.Repeat(`\u0001`, 100_000)+`"`, `{"`+strings.Repeat(`\u0001`, 100_000)+`":1}`),
		called(`"big"`, `{"a":"`+strings.Repeat("CANARY", 4<<20/6-100)+`"}`),
		called(`"wide"`, `{`+keys.String()+`"z":1}`),
		called(`"deep"`, strings.Repeat(`{"a":[`, 25)+`"CANARY"`+strings.Repeat(`]}`, 25)),
		{method: "POST\n{}", path: "/servers/" + srv.GetId() + "/rpc", host: "\u2028\"\n" + strings.Repeat("h", 10_000)},
	}
	for i, in := range rows {
		f.as(fmt.Sprint(i), in)
	}
	records := f.recorded(len(rows))
	if len(records) != len(rows) {
		t.Fatalf("%d records of %d requests", len(records), len(rows))
	}
	for line := range strings.SplitSeq(f.records.String(), "\n") {
		if len(line) > record.Most || strings.Contains(line, "CANARY") {
			t.Errorf("%d bytes: %.3000s", len(line), line)
		}
	}
	if got := records[0].Input.Call.Tool; got != "a\"b\\c\n{\"decision_id\":\"x\"}\x00\u2028" {
		t.Errorf("the tool is %q", got)
	}
	if shape := records[3].Input.Call.ArgumentsShape; shape[0].Size != 10_001 || len(shape) != 64 {
		t.Errorf("the shape is %v", shape)
	}
}

// Values of arguments go to control where a server's settings ask for them,
// masked, and nowhere else. Rules that cannot be read let none go.
func TestArgumentValuesGoToControlOnly(t *testing.T) {
	rules := []string{"/password", "/*/token"}
	recording := func(mask []string) func(*pb.Server) {
		return func(s *pb.Server) { s.RecordArguments = &pb.RecordArguments{Mask: mask} }
	}
	on, off, wrong := newServer(recording(rules)), newServer(), newServer(recording([]string{"/ok", "password"}))
	f := newFixture(t, on, off, wrong)
	f.control.mu.Lock()
	f.control.keepsRecords = true
	f.control.mu.Unlock()
	want := map[string]string{}
	askOf := func(name, server, token, body, values string) {
		f.as(name, rpcCall(server, token, body))
		if values != "" {
			want[name] = values
		}
	}
	message := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":` + arguments + `}}`
	}
	_, token := f.token(on.GetId())
	_, narrow := f.token(on.GetId(), "mcp:connect")
	_, ofOff := f.token(off.GetId())
	_, ofWrong := f.token(wrong.GetId())
	leaky := message(`{ "a": "VALUE", "Password": "CANARY", "b": {"token": ["CANARY"]} }`)
	masked := `{"a":"VALUE","Password":"masked","b":{"token":"masked"}}`
	askOf("allowed", on.GetId(), token, leaky, `[`+masked+`]`)
	askOf("denied", on.GetId(), narrow, leaky, `[`+masked+`]`)
	askOf("batch", on.GetId(), token, `[`+leaky+`,{"jsonrpc":"2.0","method":"ping"}]`, `[`+masked+`,null]`)
	askOf("too long", on.GetId(), token, message(`{"a":"`+strings.Repeat("x", record.MostValues)+`"}`), `["too long"]`)
	askOf("no arguments", on.GetId(), token, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "")
	askOf("params", on.GetId(), token, `{"jsonrpc":"2.0","id":1,"method":"vendor/do","params":{"arguments":{"a":"CANARY"}}}`, "")
	askOf("refused", on.GetId(), token, leaky[:len(leaky)-1], "")
	askOf("not recorded", off.GetId(), ofOff, leaky, "")
	askOf("wrong rules", wrong.GetId(), ofWrong, leaky, "")
	askOf("another's server", off.GetId(), token, leaky, "")

	got := map[string]string{}
	f.eventually("control has all records", func() bool {
		f.control.mu.Lock()
		defer f.control.mu.Unlock()
		count := 0
		for _, batch := range f.control.records {
			count += len(batch)
		}
		for _, v := range f.control.values {
			if v.GetServerId() != on.GetId() || v.GetMask() != mask.ID(rules) {
				t.Fatalf("values %v", v)
			}
			got[v.GetDecisionId()] = string(v.GetArguments())
		}
		return count == 10
	})
	if !maps.Equal(got, want) {
		t.Errorf("control got %v\nwant        %v", got, want)
	}
	if log := f.records.String(); strings.Contains(log, "CANARY") || strings.Contains(log, "VALUE") {
		t.Errorf("the local log is %s", log)
	}
}
