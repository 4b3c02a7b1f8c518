package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func (f *fixture) stored(name string) store.Server {
	f.t.Helper()
	srv, err := f.store.ServerByName(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return srv
}

func TestPolicyFieldsOfAServer(t *testing.T) {
	f := newFixture(t)
	srv := f.create(`{"name":"x","mcp":"http://h","policy_data":{"root": "/srv", "n": [1, 2.5]},
		"record_arguments":{"mask":["/password","/users/*/key"],"keep_seconds":3600},"tool_changes":"deny"}`)
	got := f.stored("x")
	if string(got.PolicyData) != `{"root":"/srv","n":[1,2.5]}` || got.ToolChanges != store.ToolChangesDeny ||
		!reflect.DeepEqual(got.RecordArguments, &store.RecordArguments{Mask: []string{"/password", "/users/*/key"}, Keep: time.Hour}) {
		t.Errorf("stored %+v", got)
	}
	want := api.RecordArguments{Mask: []string{"/password", "/users/*/key"}, KeepSeconds: 3600}
	if srv.ToolChanges != "deny" || !reflect.DeepEqual(srv.RecordArguments, &want) {
		t.Errorf("shown %+v", srv.Server)
	}
	var data map[string]any
	if err := json.Unmarshal(srv.PolicyData, &data); err != nil || data["root"] != "/srv" {
		t.Errorf("shown %s, %v", srv.PolicyData, err)
	}
}

func TestPolicyFieldsMergePatch(t *testing.T) {
	recording := func(keep time.Duration, mask ...string) *store.RecordArguments {
		return &store.RecordArguments{Mask: mask, Keep: keep}
	}
	for _, test := range []struct {
		name, patch string
		data        string
		recording   *store.RecordArguments
		changes     string
	}{
		{"nothing", `{}`, `{"a":1}`, recording(time.Hour, "/p"), "deny"},
		{"data is replaced as a whole", `{"policy_data":{"b":null}}`, `{"b":null}`, recording(time.Hour, "/p"), "deny"},
		{"no data", `{"policy_data":null}`, ``, recording(time.Hour, "/p"), "deny"},
		{"a mask that is not given again stays", `{"record_arguments":{"keep_seconds":60}}`, `{"a":1}`, recording(time.Minute, "/p"), "deny"},
		{"another mask", `{"record_arguments":{"mask":["/q"]}}`, `{"a":1}`, recording(time.Hour, "/q"), "deny"},
		{"the whole value", `{"record_arguments":{"mask":[""]}}`, `{"a":1}`, recording(time.Hour, ""), "deny"},
		{"no mask", `{"record_arguments":{"mask":null}}`, `{"a":1}`, recording(time.Hour), "deny"},
		{"the usual time", `{"record_arguments":{"keep_seconds":null}}`, `{"a":1}`, recording(24*time.Hour, "/p"), "deny"},
		{"not recorded", `{"record_arguments":null}`, `{"a":1}`, nil, "deny"},
		{"alarm", `{"tool_changes":"alarm"}`, `{"a":1}`, recording(time.Hour, "/p"), "alarm"},
		{"the usual", `{"tool_changes":null}`, `{"a":1}`, recording(time.Hour, "/p"), "alarm"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			srv := f.create(`{"name":"x","mcp":"http://h","policy_data":{"a":1},"record_arguments":{"mask":["/p"],"keep_seconds":3600},"tool_changes":"deny"}`)
			f.do("PATCH", "/api/v1/servers/"+srv.ID, test.patch).want(http.StatusOK, nil)
			got := f.stored("x")
			if string(got.PolicyData) != test.data || !reflect.DeepEqual(got.RecordArguments, test.recording) || got.ToolChanges != test.changes {
				t.Errorf("stored %s, %+v, %s", got.PolicyData, got.RecordArguments, got.ToolChanges)
			}
			if len(f.fleet.changes) != 1 {
				t.Errorf("waited %d times for the replicas", len(f.fleet.changes))
			}
		})
	}
}

func TestRecordArgumentsDefaults(t *testing.T) {
	f := newFixture(t)
	f.create(`{"name":"x","mcp":"http://h","record_arguments":{}}`)
	if got := f.stored("x").RecordArguments; !reflect.DeepEqual(got, &store.RecordArguments{Keep: 24 * time.Hour}) {
		t.Errorf("stored %+v", got)
	}
}

func TestPolicyFieldsReject(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	long := strings.Repeat("x", 32<<10)
	var masks []string
	for i := range 65 {
		masks = append(masks, fmt.Sprintf("/k%d", i))
	}
	tooMany, err := json.Marshal(masks)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, body, field, detail string }{
		{"data that is an array", `{"policy_data":[1]}`, "policy_data", "must be an object"},
		{"data that is a text", `{"policy_data":"{}"}`, "policy_data", "must be an object"},
		{"long data", `{"policy_data":{"a":"` + long + `"}}`, "policy_data", "32 KiB"},
		{"deep data", `{"policy_data":` + strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33) + `}`, "policy_data", "inside each other"},
		{"a number that blows up", `{"policy_data":{"a":1e400}}`, "policy_data", "too large"},
		{"a key twice in data", `{"policy_data":{"a":{"b":1,"b":2}}}`, "policy_data.a.b", "given twice"},
		{"recording that is true", `{"record_arguments":true}`, "record_arguments", "must be an object"},
		{"an unknown member", `{"record_arguments":{"masks":[]}}`, "record_arguments.masks", "not a field"},
		{"a mask that is no pointer", `{"record_arguments":{"mask":["password"]}}`, "record_arguments.mask.0", "JSON pointer"},
		{"a mask with a bad escape", `{"record_arguments":{"mask":["/a~2"]}}`, "record_arguments.mask.0", "JSON pointer"},
		{"a mask as a path", `{"record_arguments":{"mask":["$.password"]}}`, "record_arguments.mask.0", "JSON pointer"},
		{"a mask that is a number", `{"record_arguments":{"mask":["/a",1]}}`, "record_arguments.mask.1", "must be a string"},
		{"a long mask", `{"record_arguments":{"mask":["/` + strings.Repeat("x", 256) + `"]}}`, "record_arguments.mask.0", "JSON pointer"},
		{"a mask twice", `{"record_arguments":{"mask":["/a","/a"]}}`, "record_arguments.mask.1", "twice"},
		{"too many masks", `{"record_arguments":{"mask":` + string(tooMany) + `}}`, "record_arguments.mask", "more than 64"},
		{"too short", `{"record_arguments":{"keep_seconds":59}}`, "record_arguments.keep_seconds", "60 to 2592000"},
		{"too long", `{"record_arguments":{"keep_seconds":2592001}}`, "record_arguments.keep_seconds", "60 to 2592000"},
		{"for ever", `{"record_arguments":{"keep_seconds":-1}}`, "record_arguments.keep_seconds", "60 to 2592000"},
		{"a fraction", `{"record_arguments":{"keep_seconds":60.5}}`, "record_arguments.keep_seconds", "must be an integer"},
		{"another word", `{"tool_changes":"allow"}`, "tool_changes", "alarm or deny"},
		{"an empty word", `{"tool_changes":""}`, "tool_changes", "alarm or deny"},
		{"a truth", `{"tool_changes":true}`, "tool_changes", "must be a string"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			wantFault(t, f.do("PATCH", "/api/v1/servers/"+srv.ID, test.body).wantProblem(http.StatusBadRequest, ""), test.field, test.detail)
			if got := f.stored("demo"); got.PolicyData != nil || got.RecordArguments != nil || got.ToolChanges != "alarm" || got.Revision != srv.Revision {
				t.Errorf("stored %+v", got)
			}
		})
	}
}
