package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/mask"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// written is a record as extauthz writes it, of a call of one tool that the
// policy with this revision allowed.
func written(t testing.TB, revision, server, tool string) *record.Record {
	t.Helper()
	id, err := identity.ParseServerID(server)
	if err != nil {
		t.Fatal(err)
	}
	return &record.Record{
		ID: "r-" + tool, Time: testTime, Revision: revision,
		Input: record.Input{
			Principal: policies.Principal{Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "t1", Name: "agent", Server: id}},
			Server:    record.NewServer(&policies.Server{ID: id, Name: "demo"}),
			Transport: "mcp", Action: policies.ActionCall,
			Call:    &record.Call{Call: policies.Call{Method: "tools/call", Tool: tool}},
			Request: policies.Request{Method: "POST", Path: "/servers/" + server + "/mcp", Source: "127.0.0.1"},
		},
		Result:  &record.Result{Decision: policies.Decision{Allow: true}},
		Outcome: record.Allow, Reason: "allowed", Replica: "one", SettingsRevision: 1,
	}
}

// denied makes it one that the policy denied.
func denied(r *record.Record, code string) *record.Record {
	r.Result = &record.Result{Decision: policies.Decision{Denials: []policies.Denial{{Code: code, Text: "no"}}}}
	r.Outcome, r.Reason, r.Detail, r.Status = record.Deny, "policy_denied", code, 403
	return r
}

// keep puts records into the store, the newest last, with the arguments of the
// last one.
func (f *fixture) keep(arguments string, records ...*record.Record) {
	f.t.Helper()
	var kept []store.Decision
	for _, r := range records {
		one := store.Decision{ID: r.ID, Time: r.Time, JSON: r.Append(nil)}
		if r.Input.Server != nil {
			one.Server = r.Input.Server.ID
		}
		kept = append(kept, one)
	}
	if arguments != "" {
		last := &kept[len(kept)-1]
		srv := f.stored("demo")
		last.Arguments, last.Mask = []byte(arguments), mask.ID(srv.RecordArguments.Mask)
	}
	if err := f.store.AddDecisions(f.t.Context(), kept); err != nil {
		f.t.Fatal(err)
	}
}

// replace makes a policy decide and returns its revision.
func (f *fixture) replace(text string) string {
	f.t.Helper()
	var out api.ChangedPolicy
	f.do("PUT", "/api/v1/policy", files(f.t, "policy.rego", text)).want(200, &out)
	return out.Revision
}

func (f *fixture) try(body string) api.TriedPolicy {
	f.t.Helper()
	var out api.TriedPolicy
	f.do("POST", "/api/v1/policy/try", body).want(200, &out)
	return out
}

// tryFiles is the body that tries a candidate with one file.
func tryFiles(t testing.TB, text, more string) string {
	t.Helper()
	whole := files(t, "policy.rego", text)
	return whole[:len(whole)-1] + more + "}"
}

func TestTryPolicyListsDifferences(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	revision := f.replace(allowAll)
	unasked := written(t, "", srv.ID, "unasked")
	unasked.Result, unasked.Outcome, unasked.Reason = nil, record.Deny, "session_missing"
	f.keep("", written(t, revision, srv.ID, "echo"), written(t, revision, srv.ID, "drop"), denied(written(t, revision, srv.ID, "add"), "no_add"), unasked)

	got := f.try(tryFiles(t, denyDrop, ""))
	if got.Records != 4 || got.Same != 1 || got.Different != 2 || got.NotAsked != 1 || got.NotRecorded != 0 || got.Undecidable != 0 || got.ServerNow != 0 || !got.Complete {
		t.Errorf("tried %+v", got)
	}
	if got.Revision != bundleOf(denyDrop).Revision() {
		t.Errorf("the candidate is %s", got.Revision)
	}
	want := []api.Difference{
		{
			DecisionID: "r-add", Time: testTime, Principal: "access_token:t1", Server: srv.ID, Method: "tools/call", Tool: "add",
			Recorded:  api.Answer{Outcome: "deny", Denials: []api.PolicyDenial{{Code: "no_add", Message: "no"}}},
			Candidate: api.Answer{Outcome: "allow"},
		},
		{
			DecisionID: "r-drop", Time: testTime, Principal: "access_token:t1", Server: srv.ID, Method: "tools/call", Tool: "drop",
			Recorded:  api.Answer{Outcome: "allow"},
			Candidate: api.Answer{Outcome: "deny", Denials: []api.PolicyDenial{{Code: "no_drop", Message: "drop is not for agents"}}},
		},
	}
	if fmt.Sprintf("%+v", got.Differences) != fmt.Sprintf("%+v", want) {
		t.Errorf("differences %+v\nwant        %+v", got.Differences, want)
	}
	if f.policy("").Revision != revision {
		t.Error("the candidate decides")
	}
}

func TestTryPolicyTakesWhatIsAsked(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	revision := f.replace(allowAll)
	for i := range 5 {
		f.keep("", written(t, revision, srv.ID, fmt.Sprintf("t%d", i)))
	}
	for _, test := range []struct {
		name, body string
		records    int
	}{
		{"all", `{}`, 5},
		{"null", `{"files":null,"decision":null,"last":null}`, 5},
		{"the last two", `{"last":2}`, 2},
		{"more than there are", `{"last":10000}`, 5},
		{"one", `{"decision":"r-t3"}`, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			if got := f.try(test.body); got.Records != test.records || got.Same != test.records || got.Revision != revision || !got.Complete {
				t.Errorf("tried %+v", got)
			}
		})
	}
	for _, test := range []struct {
		name, body, want string
		status           int
	}{
		{"both", `{"decision":"r-t3","last":1}`, "only one", 400},
		{"none", `{"last":0}`, "1 to 10000", 400},
		{"too many", `{"last":10001}`, "1 to 10000", 400},
		{"fewer than none", `{"last":-1}`, "1 to 10000", 400},
		{"a text", `{"last":"all"}`, "must be an integer", 400},
		{"an empty id", `{"decision":""}`, "must not be empty", 400},
		{"an unknown id", `{"decision":"r-none"}`, "no decision with this id", 404},
		{"an id that is none", `{"decision":"\u0000"}`, "no decision with this id", 404},
		{"an unknown member", `{"all":true}`, "not a field", 400},
		{"a candidate that does not compile", tryFiles(t, "package policy\n\nallow if x\n", ""), "policy.rego", 422},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			f.do("POST", "/api/v1/policy/try", test.body).wantProblem(test.status, test.want)
		})
	}
}

// What depends on values that nobody kept is not guessed, in neither direction.
func TestTryPolicySaysWhatIsNotRecorded(t *testing.T) {
	const readsPath = "package policy\n\nallow if input.call.tool != \"read\"\n\nallow if startswith(input.call.arguments.path, \"/srv/\")\n"
	for _, test := range []struct {
		name, recorded, arguments string
		want                      api.TriedPolicy
	}{
		{"values that were not kept", "", "", api.TriedPolicy{NotRecorded: 1}},
		{"kept values", `{"mask":[]}`, `[{"path":"/srv/a"}]`, api.TriedPolicy{Same: 1}},
		{"kept values that are denied", `{"mask":[]}`, `[{"path":"/etc/passwd"}]`, api.TriedPolicy{Different: 1}},
		{"a value that was masked", `{"mask":["/path"]}`, `[{"path":"masked"}]`, api.TriedPolicy{NotRecorded: 1}},
		{"values that were too long", `{"mask":[]}`, `["too long"]`, api.TriedPolicy{NotRecorded: 1}},
		{"values of another number of messages", `{"mask":[]}`, `[null,null]`, api.TriedPolicy{NotRecorded: 1}},
		{"null", `{"mask":[]}`, `[null]`, api.TriedPolicy{NotRecorded: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			srv := f.create(plainServer)
			if test.recorded != "" {
				f.do("PATCH", "/api/v1/servers/"+srv.ID, `{"record_arguments":`+test.recorded+`}`).want(200, nil)
			}
			revision := f.replace(allowAll)
			r := written(t, revision, srv.ID, "read")
			r.Input.Call.Arguments = []byte(`{"path":"/srv/a"}`)
			f.keep(test.arguments, r)
			got := f.try(tryFiles(t, readsPath, ""))
			if got.NotRecorded != test.want.NotRecorded || got.Same != test.want.Same || got.Different != test.want.Different || got.Records != 1 {
				t.Errorf("tried %+v, want %+v", got, test.want)
			}
		})
	}
	t.Run("arguments that do not matter", func(t *testing.T) {
		f := newFixture(t)
		srv := f.create(plainServer)
		r := written(t, f.replace(allowAll), srv.ID, "echo")
		r.Input.Call.Arguments = []byte(`{"path":"/srv/a"}`)
		f.keep("", r)
		const other = "package policy\n\nallow if input.call.tool == \"echo\"\n"
		if got := f.try(tryFiles(t, other, "")); got.Same != 1 {
			t.Errorf("tried %+v", got)
		}
	})
}

// A record with something left out is another question.
func TestTryPolicyRefusesToGuess(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	revision := f.replace(allowAll)
	long := written(t, revision, srv.ID, "echo")
	for range 300 {
		long.Input.Call.Tool += "x"
	}
	f.keep("", long)
	if got := f.try(tryFiles(t, denyDrop, "")); got.NotRecorded != 1 || got.Records != 1 {
		t.Errorf("tried %+v", got)
	}
	err := f.store.AddDecisions(t.Context(), []store.Decision{{ID: "r-broken", Time: testTime, JSON: []byte(`{"decision_id":"r-broken","revision":"x","input":{"server":{"id":"no"}}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.try(tryFiles(t, denyDrop, "")); got.Undecidable != 1 || got.Records != 2 {
		t.Errorf("tried %+v", got)
	}
}

// A server's grants stand in the record; where they were too long for it, those
// of now are put, and it is said.
func TestTryPolicyPutsTheServerOfThen(t *testing.T) {
	const granted = "package policy\n\nallow if {\n\tsome grant in input.server.grants\n\tinput.call.tool in grant.tools\n}\n"
	grants := func(tools string) string { return `[{"principal":{},"tools":` + tools + `}]` }
	var many string
	for i := range 60 {
		many += fmt.Sprintf(`,"a_tool_with_a_name_that_is_rather_long_%d"`, i)
	}
	for _, test := range []struct {
		name, then, now string
		gone            bool
		want            api.TriedPolicy
	}{
		{"of then", grants(`["echo"]`), grants(`["add"]`), false, api.TriedPolicy{Same: 1}},
		{"of then, and the server is gone", grants(`["echo"]`), grants(`["echo"]`), true, api.TriedPolicy{Same: 1}},
		{"too long, and still the same", grants(`["echo"` + many + `]`), grants(`["echo"` + many + `]`), false, api.TriedPolicy{Same: 1}},
		{"too long, and changed", grants(`["echo"` + many + `]`), grants(`["add"]`), false, api.TriedPolicy{Different: 1, ServerNow: 1}},
		{"too long, and the server is gone", grants(`["echo"` + many + `]`), grants(`["echo"]`), true, api.TriedPolicy{Undecidable: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			srv := f.create(`{"name":"demo","mcp":"http://h","grants":` + test.now + `}`)
			r := written(t, f.replace(granted), srv.ID, "echo")
			seen := &policies.Server{ID: r.Input.Principal.Server, Name: "demo", Grants: []byte(test.then)}
			r.Input.Server = record.NewServer(seen)
			f.keep("", r)
			if test.gone {
				f.do("DELETE", "/api/v1/servers/"+srv.ID, "").want(200, nil)
			}
			got := f.try(`{}`)
			if got.Same != test.want.Same || got.Different != test.want.Different || got.ServerNow != test.want.ServerNow || got.Undecidable != test.want.Undecidable {
				t.Errorf("tried %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTryPolicyAnswersErrors(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	const conflict = "package policy\n\nallow := true if input.action\n\nallow := false if input.call\n"
	r := written(t, f.replace(allowAll), srv.ID, "echo")
	f.keep("", r)
	got := f.try(tryFiles(t, conflict, ""))
	if got.Different != 1 || got.Differences[0].Candidate.Outcome != "error" || got.Differences[0].Candidate.Error == "" {
		t.Errorf("tried %+v", got)
	}
}

func TestTryPolicySaysThatTheDatabaseIsAway(t *testing.T) {
	f := newFixture(t)
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	f.do("POST", "/api/v1/policy/try", `{}`).wantProblem(http.StatusServiceUnavailable, "database")
	f.do("GET", "/api/v1/policy", "").wantProblem(http.StatusServiceUnavailable, "database")
}

// What is hidden looks otherwise to a caller, though it is denied both times.
func TestTryPolicyComparesHide(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	f.keep("", denied(written(t, f.replace(denyDrop), srv.ID, "drop"), "no_drop"))
	if got := f.try(tryFiles(t, denyDrop+"\nhide if input.call.tool == \"drop\"\n", "")); got.Different != 1 || !got.Differences[0].Candidate.Hide {
		t.Errorf("tried %+v", got)
	}
	if got := f.try(tryFiles(t, denyDrop, "")); got.Same != 1 {
		t.Errorf("tried %+v", got)
	}
}

// One candidate may take a core and much memory; two wait for nobody.
func TestOneCandidateAtATime(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	revision := f.replace(allowAll)
	for i := range 20 {
		f.keep("", written(t, revision, srv.ID, fmt.Sprintf("t%d", i)))
	}
	const slow = "package policy\n\nallow if count([x | some x in numbers.range(1, 3000); some y in numbers.range(1, 3000); x == y + 1]) == 0\n"
	body, check := tryFiles(t, slow, ""), files(t, "policy.rego", allowAll)
	done := make(chan answer, 1)
	other := *f
	other.doc = readDocument(t, f.handler) // which is not for two goroutines
	go func() {
		got := other.do("POST", "/api/v1/policy/try", body)
		for got.status == http.StatusTooManyRequests { // behind a check below
			got = other.do("POST", "/api/v1/policy/try", body)
		}
		done <- got
	}()
	for refused := false; !refused; {
		select {
		case got := <-done:
			t.Fatalf("it was done before anybody was refused: %s", got.body)
		default:
		}
		got := f.do("POST", "/api/v1/policy/check", check)
		if refused = got.status == http.StatusTooManyRequests; refused {
			got.wantProblem(http.StatusTooManyRequests, "another candidate")
		}
	}
	var tried api.TriedPolicy
	(<-done).want(http.StatusOK, &tried)
	if tried.Records != 20 || tried.Different != 20 || tried.Differences[0].Candidate.Outcome != "error" {
		t.Errorf("tried %+v", tried)
	}
	f.do("POST", "/api/v1/policy/check", check).want(http.StatusOK, nil)
}
