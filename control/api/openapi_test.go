package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/arbiter-gateway/arbiter/control/api"
)

// document is openapi.json as a client gets it, with its schemas resolved.
type document struct {
	OpenAPI    string                                `json:"openapi"`
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Responses map[string]response                   `json:"responses"`
		Schemas   map[string]map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
	schemas map[string]*jsonschema.Resolved
	mux     *http.ServeMux // finds the path that a request is of
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"content"`
}

func readDocument(t testing.TB, handler http.Handler) *document {
	t.Helper()
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequestWithContext(api.WithCaller(t.Context(), "test"), "GET", "/api/v1/openapi.json", nil))
	doc := &document{schemas: map[string]*jsonschema.Resolved{}, mux: http.NewServeMux()}
	if err := json.Unmarshal(rec.Body.Bytes(), doc); err != nil {
		t.Fatalf("openapi.json: %v", err)
	}
	for path := range doc.Paths {
		doc.mux.Handle(path, http.NotFoundHandler())
	}
	return doc
}

// schema resolves one schema of the document, as JSON Schema 2020-12.
func (d *document) schema(t testing.TB, raw json.RawMessage) *jsonschema.Resolved {
	t.Helper()
	if found := d.schemas[string(raw)]; found != nil {
		return found
	}
	whole, err := json.Marshal(map[string]any{"$defs": d.Components.Schemas, "allOf": []any{raw}})
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(whole), "#/components/schemas/", "#/$defs/")), &schema); err != nil {
		t.Fatalf("schema %s: %v", raw, err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatalf("schema %s: %v", raw, err)
	}
	d.schemas[string(raw)] = resolved
	return resolved
}

// check holds an answer against the document.
func (d *document) check(t testing.TB, req *http.Request, got answer) {
	t.Helper()
	_, path := d.mux.Handler(req)
	content := response{Ref: "#/components/responses/Problem"}
	if operation := d.Paths[path][strings.ToLower(req.Method)]; operation != nil {
		var op struct {
			Responses map[string]response `json:"responses"`
		}
		if err := json.Unmarshal(operation, &op); err != nil {
			t.Fatalf("%s %s: %v", req.Method, path, err)
		}
		var found bool
		if content, found = op.Responses[strconv.Itoa(got.status)]; !found {
			content = op.Responses["default"]
		}
	}
	if name, found := strings.CutPrefix(content.Ref, "#/components/responses/"); found {
		content = d.Components.Responses[name]
	}
	media, found := content.Content[got.header.Get("Content-Type")]
	if !found {
		t.Errorf("%s %s: %d of type %q is not in openapi.yaml", req.Method, path, got.status, got.header.Get("Content-Type"))
		return
	}
	var value any
	if err := json.Unmarshal(got.body, &value); err != nil {
		t.Errorf("%s %s: answer is not JSON: %v", req.Method, path, err)
		return
	}
	if err := d.schema(t, media.Schema).Validate(value); err != nil {
		t.Errorf("%s %s: the answer %s is not as openapi.yaml says: %v", req.Method, path, got.body, err)
	}
}

func TestOpenAPIAndRoutesAgree(t *testing.T) {
	f := newFixture(t)
	if f.doc.OpenAPI != "3.1.0" {
		t.Errorf("openapi %q", f.doc.OpenAPI)
	}
	var documented []string
	for path, item := range f.doc.Paths {
		for key := range item {
			if key != "parameters" {
				documented = append(documented, strings.ToUpper(key)+" "+path)
			}
		}
	}
	slices.Sort(documented)
	routes := api.Routes()
	slices.Sort(routes)
	if !slices.Equal(documented, routes) {
		t.Errorf("openapi.yaml has\n%s\nthe API has\n%s", strings.Join(documented, "\n"), strings.Join(routes, "\n"))
	}
	for raw := range maps.Values(f.doc.Components.Schemas) {
		encoded, err := json.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		f.doc.schema(t, encoded)
	}
}

// The document's own check must be able to fail.
func TestOpenAPICheckRejectsAnotherAnswer(t *testing.T) {
	f := newFixture(t)
	schema := f.doc.schema(t, json.RawMessage(`{"$ref":"#/components/schemas/Deleted"}`))
	for _, test := range []struct {
		name, value string
		want        bool
	}{
		{"good", `{"id":"0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081","revocation":{"replicas":1,"replicas_confirmed":1,"missing":[],"streams_ended":0,"milliseconds":0}}`, true},
		{"no revocation", `{"id":"0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081"}`, false},
		{"another field", `{"id":"0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081","x":1,"revocation":{"replicas":1,"replicas_confirmed":1,"missing":[],"streams_ended":0,"milliseconds":0}}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var value any
			if err := json.Unmarshal([]byte(test.value), &value); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(value); (err == nil) != test.want {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}
