package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

const oneGrant = `[{"principal":{"kind":"access_token","id":"t1"},"tools":["echo","read_*"]}]`

// grantsOf decodes what an answer shows; nil: it shows none.
func grantsOf(t testing.TB, raw []byte) []api.Grant {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	out := []api.Grant{}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGrantsAreKept(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	path := "/api/v1/servers/" + srv.ID
	if srv.Grants != nil {
		t.Errorf("a new server has the grants %s", srv.Grants)
	}
	want := []api.Grant{{Principal: api.GrantPrincipal{Kind: "access_token", ID: "t1"}, Tools: []string{"echo", "read_*"}}}
	var put api.ChangedGrants
	f.do("PUT", path+"/grants", `{"grants":`+oneGrant+`}`).want(http.StatusOK, &put)
	if !reflect.DeepEqual(grantsOf(t, put.Grants.Grants), want) || put.Revocation.ReplicasConfirmed != 2 || !put.Applied.Applied {
		t.Errorf("put %+v", put)
	}
	last := f.fleet.changes[len(f.fleet.changes)-1]
	if last.Revision != put.Revision || last.What != (revocation.Key{Kind: revocation.KindServer, Key: srv.ID}) {
		t.Errorf("waited for %+v", last)
	}
	var shown api.Grants
	f.do("GET", path+"/grants", "").want(http.StatusOK, &shown)
	if !reflect.DeepEqual(grantsOf(t, shown.Grants), want) || shown.Revision != put.Revision {
		t.Errorf("shown %+v", shown)
	}
	f.logged("server updated", "grants", "admin socket uid 7", srv.ID)
}

// Nobody and not narrowed are as far apart as can be.
func TestGrantsOfNobodyAndNoGrantsDiffer(t *testing.T) {
	for _, test := range []struct{ name, body, want string }{
		{"nobody", `[]`, "[]"},
		{"not narrowed", `null`, ""},
		{"everybody", `[{"principal":{},"tools":["*"]}]`, `[{"principal":{},"tools":["*"]}]`},
	} {
		for _, way := range []string{"PATCH", "PUT"} {
			t.Run(test.name+" "+way, func(t *testing.T) {
				f := newFixture(t)
				srv := f.create(`{"name":"x","mcp":"http://h","grants":` + oneGrant + `}`)
				path := "/api/v1/servers/" + srv.ID
				if way == "PUT" {
					path += "/grants"
				}
				f.do(way, path, `{"grants":`+test.body+`}`).want(http.StatusOK, nil)
				if got := string(f.stored("x").Grants); got != test.want {
					t.Errorf("stored %q, want %q", got, test.want)
				}
			})
		}
	}
}

func TestGrantsRefuseAnOldRevision(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	path := "/api/v1/servers/" + srv.ID
	f.do("PATCH", path, `{"labels":{"a":"b"}}`).want(http.StatusOK, nil)
	body := func(revision int64) string { return fmt.Sprintf(`{"grants":[],"revision":%d}`, revision) }
	f.do("PUT", path+"/grants", body(srv.Revision)).wantProblem(http.StatusConflict, "changed by others")
	var shown api.Grants
	f.do("GET", path+"/grants", "").want(http.StatusOK, &shown)
	if shown.Grants != nil {
		t.Errorf("stored %s", shown.Grants)
	}
	f.do("PUT", path+"/grants", body(shown.Revision)).want(http.StatusOK, nil)
}

// What takes a right away is not answered before every replica has it.
func TestGrantsAreConfirmed(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	f.fleet.confirmed = func(context.Context, revocation.Change) (revocation.Result, error) {
		return revocation.Result{Missing: []string{"two"}}, context.DeadlineExceeded
	}
	f.do("PUT", "/api/v1/servers/"+srv.ID+"/grants", `{"grants":[]}`).wantProblem(http.StatusServiceUnavailable, "at two")
	refused := []revocation.Refusal{{Replica: "three", Reason: "no such thing"}}
	f.fleet.confirmed = func(context.Context, revocation.Change) (revocation.Result, error) {
		return revocation.Result{Replicas: 3, Confirmed: 2, Refused: refused}, &revocation.RefusedError{Refused: refused}
	}
	f.do("PUT", "/api/v1/servers/"+srv.ID+"/grants", `{"grants":[]}`).
		wantProblem(http.StatusServiceUnavailable, "2 of 3 replicas, but others refused it and go on as before until their leases are over, then refuse everything: three: no such thing")
}

func TestGrantsReject(t *testing.T) {
	many := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	var tools []string
	for i := range 65 {
		tools = append(tools, fmt.Sprintf("t%d", i))
	}
	tooMany, err := json.Marshal(tools)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	srv := f.create(plainServer)
	grant := func(principal, tools string) string { return `[{"principal":` + principal + `,"tools":` + tools + `}]` }
	const who = `{"kind":"access_token","id":"t1"}`
	for _, test := range []struct{ name, grants, field, detail string }{
		{"an unknown member", `[{"principal":{},"tools":["a"],"deny":true}]`, "grants.0.deny", "not a field"},
		{"an unknown part", grant(`{"name":"bob"}`, `["a"]`), "grants.0.principal.name", "not a field"},
		{"a part in another case", grant(`{"ID":"bob"}`, `["a"]`), "grants.0.principal.ID", "not a field"},
		{"a part twice", grant(`{"kind":"access_token","id":"a","id":"b"}`, `["a"]`), "grants.0.principal.id", "given twice"},
		{"no principal, which may read as everybody", `[{"tools":["a"]}]`, "grants.0.principal", "{} is everybody"},
		{"a null principal", grant(`null`, `["a"]`), "grants.0.principal", "{} is everybody"},
		{"a null grant", `[null]`, "grants.0.principal", "{} is everybody"},
		{"an empty id, which may read as everybody", grant(`{"kind":"access_token","id":""}`, `["a"]`), "grants.0.principal.id", "must not be empty"},
		{"a null id", grant(`{"kind":"access_token","id":null}`, `["a"]`), "grants.0.principal.id", "must not be empty"},
		{"an id of any kind", grant(`{"id":"t1"}`, `["a"]`), "grants.0.principal.kind", "beside id"},
		{"a kind that is none", grant(`{"kind":"accesstoken"}`, `["a"]`), "grants.0.principal.kind", "access_token"},
		{"a control character", grant(`{"client":"a\u0000"}`, `["a"]`), "grants.0.principal.client", "cannot be seen"},
		{"a long user", grant(`{"user":"`+strings.Repeat("x", 257)+`"}`, `["a"]`), "grants.0.principal.user", "256"},
		{"no tools", grant(who, `[]`), "grants.0.tools", "1 to 64"},
		{"absent tools", `[{"principal":{}}]`, "grants.0.tools", "1 to 64"},
		{"too many tools", grant(who, string(tooMany)), "grants.0.tools", "1 to 64"},
		{"an empty tool", grant(who, `[""]`), "grants.0.tools.0", "must not be empty"},
		{"a null tool", grant(who, `[null]`), "grants.0.tools.0", "must not be empty"},
		{"a number for a tool", grant(who, `[1]`), "grants.0.tools.0", "must be a string"},
		{"a * in the middle", grant(who, `["a*b"]`), "grants.0.tools.0", "not its last"},
		{"a * at the start", grant(who, `["*a"]`), "grants.0.tools.0", "not its last"},
		{"two *", grant(who, `["a**"]`), "grants.0.tools.0", "not its last"},
		{"a long tool", grant(who, `["`+strings.Repeat("x", 257)+`"]`), "grants.0.tools.0", "256"},
		{"a tool twice", grant(who, `["a","a"]`), "grants.0.tools.1", "twice"},
		{"tools that are none", grant(who, `"*"`), "grants.0.tools", "must be an array"},
		{"too many", many(257, `{"principal":{},"tools":["a"]}`), "grants", "more than 256"},
		{"an object", `{}`, "grants", "must be an array"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			for _, way := range []string{"PATCH /api/v1/servers/" + srv.ID, "PUT /api/v1/servers/" + srv.ID + "/grants"} {
				method, path, _ := strings.Cut(way, " ")
				got := f.do(method, path, `{"grants":`+test.grants+`}`).wantProblem(http.StatusBadRequest, "")
				wantFault(t, got, test.field, test.detail)
			}
			if got := f.stored("demo"); got.Grants != nil {
				t.Errorf("stored %s", got.Grants)
			}
		})
	}
	f.t = t
	path := "/api/v1/servers/" + srv.ID + "/grants"
	f.do("PUT", path, `{}`).wantProblem(http.StatusBadRequest, "null takes them back")
	f.do("PUT", path, `{"grants":[],"grants":null}`).wantProblem(http.StatusBadRequest, "given twice")
	f.do("PUT", "/api/v1/servers/"+someID+"/grants", `{"grants":[]}`).wantProblem(http.StatusNotFound, "no such server")
	f.do("GET", "/api/v1/servers/"+someID+"/grants", "").wantProblem(http.StatusNotFound, "no such server")
}

// wantFault fails unless the problem names the field and says detail of it.
func wantFault(t *testing.T, p api.Problem, field, detail string) {
	t.Helper()
	for _, fault := range p.Errors {
		if fault.Field == field && strings.Contains(fault.Detail, detail) {
			return
		}
	}
	t.Errorf("faults %v, want %s: %s", p.Errors, field, detail)
}

// A dropped part of a grant would make it one for more callers.
func TestGrantsAreStoredAsGiven(t *testing.T) {
	f := newFixture(t)
	const all = `[{"principal":{"kind":"access_token","id":"t1","client":"c","user":"u","issuer":"i"},"tools":["a"]}]`
	srv := f.create(`{"name":"x","mcp":"http://h","grants":` + all + `}`)
	if got := string(f.stored("x").Grants); got != all {
		t.Errorf("stored %s", got)
	}
	if got := grantsOf(t, srv.Grants); len(got) != 1 || got[0].Principal.Issuer != "i" {
		t.Errorf("shown %s", srv.Grants)
	}
}
