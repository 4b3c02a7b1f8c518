package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

func TestCreateTokenShowsTheValueOnce(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	at := "/api/v1/servers/" + srv.ID + "/tokens"
	var made api.Token
	answer := f.do("POST", at, `{"name":"agent","scopes":["tools:call:echo"],"expires_in":3600}`).want(http.StatusCreated, &made)
	if answer.header.Get("Cache-Control") != "no-store" {
		t.Error("the answer may be stored")
	}
	digest, err := token.Check(made.Token, token.Access, testMAC)
	if err != nil {
		t.Fatalf("the value is no token: %v", err)
	}
	row, _, err := f.store.TokenByDigest(t.Context(), digest)
	if err != nil || row.ID != made.ID || row.Server.String() != srv.ID || row.Name != "agent" ||
		!row.Narrowed || !slices.Equal(row.Scopes, []string{"tools:call:echo"}) || !row.ExpiresAt.Equal(testTime.Add(time.Hour)) {
		t.Errorf("stored %+v, %v", row, err)
	}
	var listed api.List[api.Token]
	list := f.do("GET", at, "").want(http.StatusOK, &listed)
	var shown api.Token
	show := f.do("GET", at+"/"+made.ID, "").want(http.StatusOK, &shown)
	if len(listed.Items) != 1 || listed.Items[0].ID != made.ID || shown.ID != made.ID || !shown.ExpiresAt.Equal(made.ExpiresAt) {
		t.Errorf("listed %+v, shown %+v", listed, shown)
	}
	for where, text := range map[string][]byte{"list": list.body, "show": show.body, "log": f.log.Bytes()} {
		if bytes.Contains(text, []byte(made.Token)) {
			t.Errorf("the value is in the %s", where)
		}
	}
	f.logged("token created", "admin socket uid 7", made.ID, srv.ID, "agent", "tools:call:echo")
}

func TestCreateTokenWithoutScopesIsNotNarrowed(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	var made api.Token
	f.do("POST", "/api/v1/servers/"+srv.ID+"/tokens", `{}`).want(http.StatusCreated, &made)
	row, _, err := f.store.TokenByDigest(t.Context(), token.DigestOf(made.Token))
	if err != nil || row.Narrowed || made.Scopes != nil || !row.ExpiresAt.IsZero() {
		t.Errorf("stored %+v, made %+v, %v", row, made, err)
	}
}

func TestListTokensByPages(t *testing.T) {
	f := newFixture(t)
	srv, other := f.create(plainServer), f.create(`{"name":"other","mcp":"http://h"}`)
	at := "/api/v1/servers/" + srv.ID + "/tokens"
	for range 3 {
		f.do("POST", at, `{}`).want(http.StatusCreated, nil)
	}
	var first, second, foreign api.List[api.Token]
	f.do("GET", at+"?limit=2", "").want(http.StatusOK, &first)
	f.do("GET", at+"?limit=2&cursor="+first.Next, "").want(http.StatusOK, &second)
	f.do("GET", "/api/v1/servers/"+other.ID+"/tokens", "").want(http.StatusOK, &foreign)
	if len(first.Items) != 2 || len(second.Items) != 1 || second.Next != "" || len(foreign.Items) != 0 {
		t.Errorf("pages %+v, %+v, other server %+v", first, second, foreign)
	}
}

func TestDeleteToken(t *testing.T) {
	f := newFixture(t)
	srv, other := f.create(plainServer), f.create(`{"name":"other","mcp":"http://h"}`)
	var made api.Token
	f.do("POST", "/api/v1/servers/"+srv.ID+"/tokens", `{}`).want(http.StatusCreated, &made)
	f.do("DELETE", "/api/v1/servers/"+other.ID+"/tokens/"+made.ID, "").wantProblem(http.StatusNotFound, "no such token")
	f.fleet.confirmed = func(ctx context.Context, _ revocation.Change) (revocation.Result, error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("the wait has no end")
		}
		return revocation.Result{Replicas: 2, Confirmed: 2, StreamsEnded: 3, Took: 1500 * time.Microsecond}, nil
	}
	var got api.Deleted
	f.do("DELETE", "/api/v1/servers/"+srv.ID+"/tokens/"+made.ID, "").want(http.StatusOK, &got)
	if got.ID != made.ID || got.Revocation.ReplicasConfirmed != 2 || got.Revocation.StreamsEnded != 3 || got.Revocation.Milliseconds != 1 {
		t.Errorf("deleted %+v", got)
	}
	if got.Revocation.Missing == nil {
		t.Error("missing is null, not []")
	}
	f.logged("token deleted", "admin socket uid 7", made.ID)
}

// A second delete finds nothing any more, and is not answered before the first
// one could be: whoever repeats it would take its answer for the promise.
func TestSecondDeleteWaitsToo(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	var made api.Token
	f.do("POST", "/api/v1/servers/"+srv.ID+"/tokens", `{}`).want(http.StatusCreated, &made)
	at := "/api/v1/servers/" + srv.ID + "/tokens/" + made.ID
	f.do("DELETE", at, "").want(http.StatusOK, nil)
	f.fleet.confirmed = func(context.Context, revocation.Change) (revocation.Result, error) {
		return revocation.Result{Replicas: 1, Missing: []string{"one"}}, context.DeadlineExceeded
	}
	f.do("DELETE", at, "").wantProblem(http.StatusServiceUnavailable, "ended at one")
	f.fleet.confirmed = nil
	f.do("DELETE", at, "").wantProblem(http.StatusNotFound, "no such token")
	f.do("DELETE", "/api/v1/servers/"+srv.ID, "").want(http.StatusOK, nil)
	f.do("DELETE", "/api/v1/servers/"+srv.ID, "").wantProblem(http.StatusNotFound, "no such server")
	var seqs []int64
	for _, change := range f.fleet.changes {
		seqs = append(seqs, change.Seq)
	}
	if want := []int64{1, 1, 1, 2, 2}; !slices.Equal(seqs, want) {
		t.Errorf("waited for %v, want %v", seqs, want)
	}
}

// refuseWrites makes the database refuse every write, as a full or read-only one does.
func (f *fixture) refuseWrites() {
	f.t.Helper()
	db, err := sql.Open("sqlite", "file:"+f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(f.t.Context(), `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'`)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			f.t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil || len(tables) == 0 {
		f.t.Fatal(tables, err)
	}
	for _, table := range tables {
		for _, write := range []string{"INSERT", "UPDATE", "DELETE"} {
			trigger := "CREATE TRIGGER refuse_" + write + "_" + table + " BEFORE " + write + " ON " + table + " BEGIN SELECT RAISE(ABORT, 'canary: disk full'); END"
			if _, err := db.ExecContext(f.t.Context(), trigger); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

func TestUnwritableDatabaseChangesNothing(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	at := "/api/v1/servers/" + srv.ID
	var made api.Token
	f.do("POST", at+"/tokens", `{}`).want(http.StatusCreated, &made)
	before := string(f.do("GET", "/api/v1/servers", "").body) + string(f.do("GET", at+"/tokens", "").body)
	f.fleet.revisions, f.fleet.changes = nil, nil
	f.refuseWrites()
	for _, test := range []struct{ name, method, path, body string }{
		{"create server", "POST", "/api/v1/servers", `{"name":"y","mcp":"http://h"}`},
		{"update server", "PATCH", at, `{"name":"y"}`},
		{"disable server", "POST", at + "/disable", ""},
		{"enable server", "POST", at + "/enable", ""},
		{"delete server", "DELETE", at, ""},
		{"create token", "POST", at + "/tokens", `{}`},
		{"delete token", "DELETE", at + "/tokens/" + made.ID, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			got := f.do(test.method, test.path, test.body)
			got.wantProblem(http.StatusServiceUnavailable, "nothing was changed")
			if strings.Contains(string(got.body), "canary") || strings.Contains(string(got.body), "arb_at_") {
				t.Errorf("the answer says too much: %s", got.body)
			}
		})
	}
	f.t = t
	if after := string(f.do("GET", "/api/v1/servers", "").body) + string(f.do("GET", at+"/tokens", "").body); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	if len(f.fleet.revisions)+len(f.fleet.changes) != 0 {
		t.Error("the fleet was asked about a change that was not stored")
	}
	if !strings.Contains(f.log.String(), "canary: disk full") {
		t.Error("the cause is not in the log")
	}
}

func TestClosedDatabaseAnswersUnavailable(t *testing.T) {
	f := newFixture(t)
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{
		"/api/v1/servers", "/api/v1/servers?name=x", "/api/v1/servers/" + someID,
		"/api/v1/servers/" + someID + "/tokens", "/api/v1/servers/" + someID + "/tokens/" + someID, "/api/v1/decisions/x",
	} {
		f.do("GET", target, "").wantProblem(http.StatusServiceUnavailable, "cannot be used")
	}
}
