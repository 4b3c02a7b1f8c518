package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func TestToolsAreListedAndApproved(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	at := "/api/v1/servers/" + srv.ID + "/tools"
	f.list(srv.ID, map[string]byte{"add": 1, "echo": 1})
	f.list(srv.ID, map[string]byte{"add": 2, "echo": 2})

	f.wantTools(at, map[string]string{"add": "changed", "echo": "changed"})
	var done api.ToolsApproved
	f.do("POST", at+"/approve", `{"names":["echo"]}`).want(http.StatusOK, &done)
	if done.Approved != 1 || !done.Applied.Applied {
		t.Errorf("approved %+v", done)
	}
	f.wantTools(at, map[string]string{"add": "changed", "echo": "approved"})
	var one api.List[api.Tool]
	f.do("GET", at+"?name=add", "").want(http.StatusOK, &one)
	if len(one.Items) != 1 || !strings.Contains(string(one.Items[0].WasText), `"v": 1`) || !strings.Contains(string(one.Items[0].IsText), `"v": 2`) {
		t.Fatalf("one tool: %+v", one.Items)
	}
	f.list(srv.ID, map[string]byte{"add": 3})
	look := `{"seen":{"add":"` + one.Items[0].Seen + `"}}`
	f.do("POST", at+"/approve", look).want(http.StatusConflict, nil)
	f.list(srv.ID, map[string]byte{"add": 2})
	f.do("POST", at+"/approve", look).want(http.StatusOK, &done)
	f.wantTools(at, map[string]string{"add": "approved", "echo": "approved"})
	f.list(srv.ID, map[string]byte{"add": 4})
	f.do("POST", at+"/approve", `{}`).want(http.StatusOK, &done)
	f.wantTools(at, map[string]string{"add": "approved", "echo": "approved"})
	f.logged("tools approved", "admin socket uid 7", srv.ID)
	var gone api.ToolsForgotten
	f.do("DELETE", at, "").want(http.StatusOK, &gone)
	if gone.Forgotten != 2 {
		t.Errorf("forgot %+v", gone)
	}
	f.wantTools(at, nil)
	f.logged("tools forgotten", "admin socket uid 7", srv.ID)
}

func TestApproveToolsRefuses(t *testing.T) {
	f := newFixture(t)
	srv := f.create(plainServer)
	at := "/api/v1/servers/" + srv.ID + "/tools"
	f.list(srv.ID, map[string]byte{"echo": 1})
	f.list(srv.ID, map[string]byte{"echo": 2})
	for _, row := range []struct {
		name, path, body string
		want             int
	}{
		{"a tool that is not there", at, `{"names":["echo","nobody"]}`, http.StatusNotFound},
		{"no tool", at, `{"names":[]}`, http.StatusBadRequest},
		{"nothing", at, `{"names":null}`, http.StatusBadRequest},
		{"something else", at, `{"tools":["echo"]}`, http.StatusBadRequest},
		{"a text", at, `{"names":"echo"}`, http.StatusBadRequest},
		{"no hash", at, `{"seen":{}}`, http.StatusBadRequest},
		{"a hash that is none", at, `{"seen":{"echo":"x"}}`, http.StatusBadRequest},
		{"a hash of a tool that is not there", at, `{"seen":{"nobody":"` + strings.Repeat("0", 64) + `"}}`, http.StatusNotFound},
		{"another server", "/api/v1/servers/" + identity.NewServerID().String() + "/tools", `{}`, http.StatusNotFound},
	} {
		if got := f.do("POST", row.path+"/approve", row.body); got.status != row.want {
			t.Errorf("%s: %d %s", row.name, got.status, got.body)
		}
	}
	f.wantTools(at, map[string]string{"echo": "changed"})
}

// list is a server's list of tools, as a replica reports it.
func (f *fixture) list(server string, tools map[string]byte) {
	f.t.Helper()
	id, err := identity.ParseServerID(server)
	if err != nil {
		f.t.Fatal(err)
	}
	listed := map[string]store.ToolDefinition{}
	for name, b := range tools {
		listed[name] = store.ToolDefinition{Hash: store.ToolHash{b}, Text: fmt.Sprintf(`{"v":%d}`, b)}
	}
	if _, err := f.store.SeeTools(f.t.Context(), id, listed); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) wantTools(at string, want map[string]string) {
	f.t.Helper()
	var got api.List[api.Tool]
	f.do("GET", at, "").want(http.StatusOK, &got)
	if len(got.Items) != len(want) {
		f.t.Errorf("listed %+v", got.Items)
	}
	for _, tool := range got.Items {
		if tool.State != want[tool.Name] || (tool.State == "changed") != (tool.Seen != tool.Approved) || tool.FirstAt.IsZero() {
			f.t.Errorf("%s is %+v, want %s", tool.Name, tool, want[tool.Name])
		}
	}
}
