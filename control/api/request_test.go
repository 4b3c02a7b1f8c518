package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
)

const someID = "0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081"

func TestAPIRejectsRequestsWithoutCaller(t *testing.T) {
	f := newFixture(t)
	for _, target := range []string{"/api/v1/servers", "/api/v1/openapi.json", "/api/v1/status", "/elsewhere"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			req := httptest.NewRequestWithContext(context.Background(), method, target, nil)
			f.send(req).wantProblem(http.StatusForbidden, "not known who is calling")
		}
	}
}

func TestAPIRejectsWrongRequests(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"unknown path", "GET", "/api/v1/nothing", "", 404, "Not Found"},
		{"trailing slash", "GET", "/api/v1/servers/", "", 404, "Not Found"},
		{"root", "GET", "/", "", 404, "Not Found"},
		{"method", "PUT", "/api/v1/servers", "", 405, "Method Not Allowed"},
		{"options", "OPTIONS", "/api/v1/servers", "", 405, "Method Not Allowed"},
		{"body of a list", "GET", "/api/v1/servers", "{}", 400, "takes no body"},
		{"body of a delete", "DELETE", "/api/v1/servers/" + srv.ID, "{}", 400, "takes no body"},
		{"body of a disable", "POST", "/api/v1/servers/" + srv.ID + "/disable", "{}", 400, "takes no body"},
		{"unknown query", "GET", "/api/v1/servers?x=1", "", 400, `"field": "x"`},
		{"query twice", "GET", "/api/v1/servers?limit=1&limit=2", "", 400, "more than once"},
		{"malformed query", "GET", "/api/v1/servers?%zz", "", 400, "malformed"},
		{"query of a show", "GET", "/api/v1/servers/" + srv.ID + "?limit=1", "", 400, `"field": "limit"`},
		{"limit 0", "GET", "/api/v1/servers?limit=0", "", 400, "1 to 200"},
		{"limit 201", "GET", "/api/v1/servers?limit=201", "", 400, "1 to 200"},
		{"limit of text", "GET", "/api/v1/servers?limit=ten", "", 400, "1 to 200"},
		{"cursor of servers", "GET", "/api/v1/servers?cursor=*", "", 400, `"field": "cursor"`},
		{"cursor of tokens", "GET", "/api/v1/servers/" + srv.ID + "/tokens?cursor=*", "", 400, `"field": "cursor"`},
		{"server that is not", "GET", "/api/v1/servers/" + someID, "", 404, "no such server"},
		{"server that is no id", "GET", "/api/v1/servers/demo", "", 404, "no such server"},
		{"upper case id", "GET", "/api/v1/servers/" + strings.ToUpper(srv.ID), "", 404, "no such server"},
		{"update of none", "PATCH", "/api/v1/servers/" + someID, `{"name":"x"}`, 404, "no such server"},
		{"delete of none", "DELETE", "/api/v1/servers/" + someID, "", 404, "no such server"},
		{"disable of none", "POST", "/api/v1/servers/" + someID + "/disable", "", 404, "no such server"},
		{"tokens of none", "GET", "/api/v1/servers/" + someID + "/tokens", "", 404, "no such server"},
		{"token for none", "POST", "/api/v1/servers/" + someID + "/tokens", "{}", 404, "no such server"},
		{"token that is not", "GET", "/api/v1/servers/" + srv.ID + "/tokens/" + someID, "", 404, "no such token"},
		{"token that is no id", "DELETE", "/api/v1/servers/" + srv.ID + "/tokens/arb_at_x", "", 404, "no such token"},
		{"delete of no token", "DELETE", "/api/v1/servers/" + srv.ID + "/tokens/" + someID, "", 404, "no such token"},
		{"empty body", "POST", "/api/v1/servers", " ", 400, "must be a JSON object"},
		{"array", "POST", "/api/v1/servers", "[]", 400, "must be a JSON object"},
		{"null", "POST", "/api/v1/servers", "null", 400, "must be a JSON object"},
		{"cut", "POST", "/api/v1/servers", `{"name":"x"`, 400, "not JSON"},
		{"two values", "POST", "/api/v1/servers", `{"name":"x"} {}`, 400, "not JSON"},
		{"invalid UTF-8", "POST", "/api/v1/servers", "{\"name\":\"\xff\"}", 400, "not JSON"},
		{"lone surrogate", "POST", "/api/v1/servers", `{"name":"\ud800"}`, 400, "not JSON"},
		{"unknown key", "POST", "/api/v1/servers", `{"nome":"x"}`, 400, `"field": "nome"`},
		{"key in another case", "POST", "/api/v1/servers", `{"Name":"x"}`, 400, `"field": "Name"`},
		{"unknown nested key", "POST", "/api/v1/servers", `{"limits":{"x":1}}`, 400, `"field": "limits.x"`},
		{"unknown header key", "POST", "/api/v1/servers", `{"headers":[{"x":1}]}`, 400, `"field": "headers.0.x"`},
		{"duplicate key", "POST", "/api/v1/servers", `{"name":"x","name":"y"}`, 400, "given twice"},
		{"duplicate label", "POST", "/api/v1/servers", `{"labels":{"a":"x","a":"y"}}`, 400, "labels.a"},
		{"read-only key", "PATCH", "/api/v1/servers/" + srv.ID, `{"enabled":false}`, 400, `"field": "enabled"`},
		{"control character in a key", "POST", "/api/v1/servers", `{"\u001b[31m":1}`, 400, `"field": "?[31m"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			f.do(test.method, test.path, test.body).wantProblem(test.status, test.want)
		})
	}
	f.t = t
	if got := f.do("PUT", "/api/v1/servers", "").header.Get("Allow"); got != "GET, POST" {
		t.Errorf("Allow %q", got)
	}
	var list api.List[api.Server]
	f.do("GET", "/api/v1/servers", "").want(http.StatusOK, &list)
	if len(list.Items) != 1 || list.Items[0].Revision != srv.Revision || !list.Items[0].Enabled {
		t.Errorf("a refused request changed something: %+v", list)
	}
}

func TestAPIRejectsWrongMediaTypes(t *testing.T) {
	for _, test := range []struct {
		name  string
		types []string
		want  int
	}{
		{"json", []string{"application/json"}, 201},
		{"charset", []string{"application/json; charset=UTF-8"}, 201},
		{"none", nil, 415},
		{"form", []string{"application/x-www-form-urlencoded"}, 415},
		{"text", []string{"text/plain"}, 415},
		{"another charset", []string{"application/json; charset=latin1"}, 415},
		{"malformed", []string{"application/json;;"}, 415},
		{"two", []string{"application/json", "application/json"}, 415},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			req := httptest.NewRequestWithContext(api.WithCaller(t.Context(), "x"), "POST", "/api/v1/servers", strings.NewReader(plainServer))
			req.Header["Content-Type"] = test.types
			f.send(req).want(test.want, nil)
		})
	}
}

func TestAPIRejectsLargeBodies(t *testing.T) {
	f := newFixture(t)
	body := func(size int) string { return plainServer + strings.Repeat(" ", size-len(plainServer)) }
	f.do("POST", "/api/v1/servers", body(64<<10+1)).wantProblem(http.StatusRequestEntityTooLarge, "64 KiB")
	f.do("POST", "/api/v1/servers", body(64<<10)).want(http.StatusCreated, nil)
}

func FuzzCreateServer(f *testing.F) {
	f.Add(plainServer)
	f.Add(`{"name":"x","mcp":"http://h","labels":{"a":null},"limits":null,"headers":[{"name":"A","value":"b"}]}`)
	f.Add(`{"name":"x","name":"y"}`)
	f.Add(`{"ca":"-----BEGIN CERTIFICATE-----"}`)
	fix := newFixture(f)
	f.Fuzz(func(t *testing.T, body string) {
		if body == "" {
			return // another request
		}
		fix.t = t
		got := fix.do("POST", "/api/v1/servers", body)
		switch got.status {
		case http.StatusCreated:
			var made api.ChangedServer
			got.want(http.StatusCreated, &made)
			fix.do("DELETE", "/api/v1/servers/"+made.ID, "").want(http.StatusOK, nil)
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("status %d: %s", got.status, got.body)
		}
	})
}
