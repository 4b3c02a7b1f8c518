package api_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

func TestCreateServerDefaults(t *testing.T) {
	f := newFixture(t)
	got := f.create(plainServer)
	if !got.Applied.Applied || got.Reason != "" || !got.Enabled || got.Name != "demo" || got.MCP != "https://mcp.example.com/mcp" ||
		got.RPC != "" || got.CA != "" || !slices.Equal(got.Eras, []string{"legacy"}) || got.Denials != "mcp" || got.Batches ||
		got.Limits != (api.Limits{MaxBody: 4 << 20, CallLimitSeconds: 600}) || len(got.HeaderNames) != 0 {
		t.Errorf("created %+v", got)
	}
	var shown api.Server
	f.do("GET", "/api/v1/servers/"+got.ID, "").want(http.StatusOK, &shown)
	if shown.ID != got.ID || shown.Revision != got.Revision {
		t.Errorf("shown %+v", shown)
	}
	if !slices.Equal(f.fleet.revisions, []int64{got.Revision}) {
		t.Errorf("waited for %v, want revision %d", f.fleet.revisions, got.Revision)
	}
	f.logged("server created", "admin socket uid 7", got.ID, "demo")
}

func TestCreateServerKeepsEverything(t *testing.T) {
	f := newFixture(t)
	ca := certificate(t)
	got := f.create(fmt.Sprintf(`{"name":"x","mcp":"HTTPS://Mcp.Example.com:443","rpc":"http://10.0.0.1/rpc","ca":%q,"eras":["modern"],
		"allowed_origins":["https://a.example"],"labels":{"team":"a"},"limits":{"max_body":2048,"call_limit_seconds":5},
		"batches":true,"denials":"http","headers":[{"name":"x-key","value":"canary-1"},{"name":"authorization","value":"Bearer canary-2"}]}`, "junk\n"+ca))
	if got.MCP != "https://mcp.example.com/" || got.RPC != "http://10.0.0.1/rpc" || got.CA != ca || !slices.Equal(got.Eras, []string{"modern"}) ||
		!slices.Equal(got.AllowedOrigins, []string{"https://a.example"}) || !maps.Equal(got.Labels, map[string]string{"team": "a"}) ||
		got.Limits != (api.Limits{MaxBody: 2048, CallLimitSeconds: 5}) || !got.Batches || got.Denials != "http" {
		t.Errorf("created %+v", got)
	}
	slices.Sort(got.HeaderNames)
	if !slices.Equal(got.HeaderNames, []string{"Authorization", "X-Key"}) {
		t.Errorf("headers %q", got.HeaderNames)
	}
	shown := f.do("GET", "/api/v1/servers/"+got.ID, "").body
	if strings.Contains(string(shown)+f.log.String(), "canary") {
		t.Error("a header's value is in an answer or in the log")
	}
	if names := f.headerValues(got.ID); names["X-Key"] != "canary-1" || names["Authorization"] != "Bearer canary-2" {
		t.Errorf("stored %v", names)
	}
}

func (f *fixture) headerValues(id string) map[string]string {
	f.t.Helper()
	server, err := identity.ParseServerID(id)
	if err != nil {
		f.t.Fatal(err)
	}
	headers, _, err := f.store.UpstreamHeaders(f.t.Context(), server)
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]string{}
	for _, h := range headers {
		out[h.Name] = h.Value.Reveal()
	}
	return out
}

func TestServerNamesAreUnique(t *testing.T) {
	f := newFixture(t)
	f.create(plainServer)
	other := f.create(`{"name":"other","mcp":"http://h"}`)
	f.do("POST", "/api/v1/servers", plainServer).wantProblem(http.StatusConflict, "another server has it")
	f.do("PATCH", "/api/v1/servers/"+other.ID, `{"name":"demo"}`).wantProblem(http.StatusConflict, "another server has it")
}

func TestListServers(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		f.create(fmt.Sprintf(`{"name":"s%d","mcp":"http://h"}`, i))
	}
	var names []string
	query := "?limit=2"
	for pages := 0; ; pages++ {
		var page api.List[api.Server]
		f.do("GET", "/api/v1/servers"+query, "").want(http.StatusOK, &page)
		for _, s := range page.Items {
			names = append(names, s.Name)
		}
		if page.Next == "" {
			if pages != 2 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
		query = "?limit=2&cursor=" + url.QueryEscape(page.Next)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"s0", "s1", "s2", "s3", "s4"}) {
		t.Errorf("listed %q", names)
	}
	for _, test := range []struct {
		name string
		want int
	}{{"s3", 1}, {"S3", 0}, {"", 0}, {"s", 0}} {
		var page api.List[api.Server]
		f.do("GET", "/api/v1/servers?name="+test.name, "").want(http.StatusOK, &page)
		if len(page.Items) != test.want || test.want == 1 && page.Items[0].Name != test.name {
			t.Errorf("named %q: %+v", test.name, page)
		}
	}
}

func TestUpdateServerMergesPatch(t *testing.T) {
	const start = `{"name":"x","mcp":"http://m","rpc":"http://r","eras":["legacy","modern"],"allowed_origins":["https://a"],
		"labels":{"a":"1","b":"2"},"limits":{"max_body":2048,"call_limit_seconds":5},"batches":true,"denials":"http"}`
	for _, test := range []struct {
		name, patch string
		want        func(*api.Server)
	}{
		{"nothing", `{}`, func(*api.Server) {}},
		{"name", `{"name":"y"}`, func(s *api.Server) { s.Name = "y" }},
		{"same name", `{"name":"x"}`, func(*api.Server) {}},
		{"rpc null", `{"rpc":null}`, func(s *api.Server) { s.RPC = "" }},
		{"mcp null", `{"mcp":null}`, func(s *api.Server) { s.MCP = "" }},
		{"eras", `{"eras":["modern"]}`, func(s *api.Server) { s.Eras = []string{"modern"} }},
		{"eras null", `{"eras":null}`, func(s *api.Server) { s.Eras = []string{"legacy"} }},
		{"origins", `{"allowed_origins":["https://b"]}`, func(s *api.Server) { s.AllowedOrigins = []string{"https://b"} }},
		{"origins null", `{"allowed_origins":null}`, func(s *api.Server) { s.AllowedOrigins = []string{} }},
		{"labels", `{"labels":{"a":null,"c":"3"}}`, func(s *api.Server) { s.Labels = map[string]string{"b": "2", "c": "3"} }},
		{"labels null", `{"labels":null}`, func(s *api.Server) { s.Labels = map[string]string{} }},
		{"one limit", `{"limits":{"max_body":4096}}`, func(s *api.Server) { s.Limits.MaxBody = 4096 }},
		{"one limit null", `{"limits":{"max_body":null}}`, func(s *api.Server) { s.Limits.MaxBody = 4 << 20 }},
		{"limits null", `{"limits":null}`, func(s *api.Server) { s.Limits = api.Limits{MaxBody: 4 << 20, CallLimitSeconds: 600} }},
		{"batches", `{"batches":false}`, func(s *api.Server) { s.Batches = false }},
		{"denials null", `{"denials":null}`, func(s *api.Server) { s.Denials = "mcp" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			want := f.create(start).Server
			var got api.ChangedServer
			f.do("PATCH", "/api/v1/servers/"+want.ID, test.patch).want(http.StatusOK, &got)
			test.want(&want)
			want.Revision, want.UpdatedAt = got.Revision, got.UpdatedAt
			if fmt.Sprintf("%+v", got.Server) != fmt.Sprintf("%+v", want) {
				t.Errorf("got  %+v\nwant %+v", got.Server, want)
			}
			if f.fleet.revisions[1] != got.Revision {
				t.Errorf("waited for %v, want revision %d", f.fleet.revisions, got.Revision)
			}
		})
	}
}

func TestUpdateServerRejectsNoUpstream(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	f.do("PATCH", "/api/v1/servers/"+srv.ID, `{"mcp":null}`).wantProblem(http.StatusBadRequest, "at least one of mcp and rpc")
}

// A stored header is a secret of the party it was given for.
func TestUpdateServerDropsHeadersOfAnotherParty(t *testing.T) {
	for _, test := range []struct {
		name, patch string
		dropped     bool
	}{
		{"another path", `{"mcp":"https://m.example/other"}`, false},
		{"host in another case", `{"mcp":"https://M.example:443/"}`, false},
		{"another name", `{"name":"y"}`, false},
		{"rpc at the same party", `{"rpc":"https://m.example/rpc"}`, false},
		{"another scheme", `{"mcp":"http://m.example"}`, true},
		{"scheme with the old port", `{"mcp":"http://m.example:443"}`, true},
		{"another host", `{"mcp":"https://evil.example"}`, true},
		{"host with a tail", `{"mcp":"https://m.example.evil"}`, true},
		{"another port", `{"mcp":"https://m.example:8443"}`, true},
		{"rpc at another party", `{"rpc":"https://evil.example"}`, true},
		{"moved from mcp to rpc elsewhere", `{"mcp":null,"rpc":"https://evil.example"}`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			srv := f.create(`{"name":"x","mcp":"https://m.example/","headers":[{"name":"X-Key","value":"canary"}]}`)
			var got api.ChangedServer
			f.do("PATCH", "/api/v1/servers/"+srv.ID, test.patch).want(http.StatusOK, &got)
			kept := f.headerValues(srv.ID)["X-Key"] == "canary"
			if kept == test.dropped || slices.Equal(got.HeadersDropped, []string{"X-Key"}) != test.dropped || (len(got.HeaderNames) == 0) != test.dropped {
				t.Errorf("dropped %q, names %q, kept %v", got.HeadersDropped, got.HeaderNames, kept)
			}
		})
	}
}

func TestUpdateServerReplacesHeaders(t *testing.T) {
	for _, test := range []struct {
		name, patch string
		want        map[string]string
	}{
		{"given again with another host", `{"mcp":"https://n.example","headers":[{"name":"X-Key","value":"new"}]}`, map[string]string{"X-Key": "new"}},
		{"others", `{"headers":[{"name":"X-Other","value":"o"}]}`, map[string]string{"X-Other": "o"}},
		{"none", `{"headers":[]}`, map[string]string{}},
		{"null", `{"headers":null}`, map[string]string{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			srv := f.create(`{"name":"x","mcp":"https://m.example/","headers":[{"name":"X-Key","value":"old"}]}`)
			var got api.ChangedServer
			f.do("PATCH", "/api/v1/servers/"+srv.ID, test.patch).want(http.StatusOK, &got)
			if stored := f.headerValues(srv.ID); !maps.Equal(stored, test.want) || len(got.HeadersDropped) != 0 {
				t.Errorf("stored %v, dropped %v", stored, got.HeadersDropped)
			}
		})
	}
}

func TestChangesSayWhenTheyAreNotApplied(t *testing.T) {
	for _, test := range []struct {
		name    string
		applied func(context.Context, int64) error
		want    string
	}{
		{"refused", func(context.Context, int64) error { return errors.New("envoy refused revision 7: bad CA") }, "envoy refused revision 7: bad CA"},
		{"late", func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }, "not everything runs it yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			f.fleet.applied = test.applied
			created := f.create(plainServer)
			var updated, enabled api.ChangedServer
			var disabled api.DisabledServer
			at := "/api/v1/servers/" + created.ID
			f.do("PATCH", at, `{"name":"y"}`).want(http.StatusOK, &updated)
			f.do("POST", at+"/disable", "").want(http.StatusOK, &disabled)
			f.do("POST", at+"/enable", "").want(http.StatusOK, &enabled)
			for i, got := range []api.Applied{created.Applied, updated.Applied, disabled.Applied, enabled.Applied} {
				if got.Applied || !strings.Contains(got.Reason, test.want) {
					t.Errorf("change %d: %+v", i, got)
				}
			}
			if updated.Name != "y" || !enabled.Enabled {
				t.Error("the change is not stored")
			}
		})
	}
}

// What may take rights away says who runs it, and which streams it has ended.
func TestDisableAndUpdateAreConfirmed(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	f.fleet.confirmed = func(context.Context, revocation.Change) (revocation.Result, error) {
		return revocation.Result{Replicas: 2, Confirmed: 1, Missing: []string{"two"}, StreamsEnded: 9, Took: time.Millisecond}, nil
	}
	want := api.Revocation{Replicas: 2, ReplicasConfirmed: 1, Missing: []string{"two"}, StreamsEnded: 9, Milliseconds: 1}
	var updated api.ChangedServer
	f.do("PATCH", "/api/v1/servers/"+srv.ID, `{"eras":["modern"]}`).want(http.StatusOK, &updated)
	if updated.Revocation == nil || !reflect.DeepEqual(*updated.Revocation, want) {
		t.Errorf("updated %+v, want %+v", updated.Revocation, want)
	}
	var got api.DisabledServer
	f.do("POST", "/api/v1/servers/"+srv.ID+"/disable", "").want(http.StatusOK, &got)
	if got.ID != srv.ID || !got.Applied.Applied || !reflect.DeepEqual(got.Revocation, want) {
		t.Errorf("disabled %+v, want %+v", got, want)
	}
	what := revocation.Key{Kind: revocation.KindServer, Key: srv.ID}
	if asked := []revocation.Change{{Revision: updated.Revision, What: what, Asked: testTime}, {Revision: got.Revision, What: what, Asked: testTime}}; !slices.Equal(f.fleet.changes, asked) {
		t.Errorf("waited for %+v, want %+v", f.fleet.changes, asked)
	}
	var shown api.Server
	if f.do("GET", "/api/v1/servers/"+srv.ID, "").want(http.StatusOK, &shown); shown.Enabled {
		t.Error("still enabled")
	}
	f.logged("server disabled", "admin socket uid 7", srv.ID)
}

// An answer that is not known to hold everywhere is none.
func TestUnconfirmedChangesAreErrors(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	at := "/api/v1/servers/" + srv.ID
	var token api.Token
	f.do("POST", at+"/tokens", "{}").want(http.StatusCreated, &token)
	f.fleet.confirmed = func(context.Context, revocation.Change) (revocation.Result, error) {
		return revocation.Result{Replicas: 1, Missing: []string{"one"}}, context.DeadlineExceeded
	}
	for _, row := range [][3]string{
		{"PATCH", at, `{"name":"y"}`},
		{"POST", at + "/disable", ""},
		{"DELETE", at + "/tokens/" + token.ID, ""},
		{"DELETE", at, ""},
	} {
		f.do(row[0], row[1], row[2]).wantProblem(http.StatusServiceUnavailable, "it is not known that what it ends is ended at one")
	}
	f.do("GET", at, "").wantProblem(http.StatusNotFound, "no such server") // it is stored all the same
}

func TestDeleteServer(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	f.do("POST", "/api/v1/servers/"+srv.ID+"/tokens", "{}").want(http.StatusCreated, nil)
	f.fleet.confirmed = func(context.Context, revocation.Change) (revocation.Result, error) {
		return revocation.Result{Replicas: 3, Confirmed: 2, Missing: []string{"c"}, StreamsEnded: 100}, nil
	}
	var got api.Deleted
	f.do("DELETE", "/api/v1/servers/"+srv.ID, "").want(http.StatusOK, &got)
	r := got.Revocation
	if got.ID != srv.ID || r.Replicas != 3 || r.ReplicasConfirmed != 2 || !slices.Equal(r.Missing, []string{"c"}) || r.StreamsEnded != 100 {
		t.Errorf("deleted %+v", got)
	}
	position, err := f.store.Position(t.Context())
	revision, err2 := f.store.Revision(t.Context())
	want := []revocation.Change{{Seq: position.Seq, Revision: revision, What: revocation.Key{Kind: revocation.KindServer, Key: srv.ID}, Asked: testTime}}
	if err := errors.Join(err, err2); err != nil || !slices.Equal(f.fleet.changes, want) {
		t.Errorf("waited for %+v, want %+v, %v", f.fleet.changes, want, err)
	}
	f.do("GET", "/api/v1/servers/"+srv.ID, "").wantProblem(http.StatusNotFound, "no such server")
	f.do("GET", "/api/v1/servers/"+srv.ID+"/tokens", "").wantProblem(http.StatusNotFound, "no such server")
	f.logged("server deleted", "admin socket uid 7", srv.ID)
	f.logged("revocation carried out", "confirmed=2")
}
