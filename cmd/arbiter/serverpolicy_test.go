package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

func (s *shell) server(name string) store.Server {
	s.t.Helper()
	srv, err := s.store.ServerByName(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return srv
}

func TestServerPolicyFlags(t *testing.T) {
	s := newShell(t).serve()
	data := s.write("data.json", ` {"root": "/srv"} `)
	s.run("server", "add", "demo", "--mcp", "http://h", "--grant", "access_token:t1=echo,read_*", "--grant", "*=ping",
		"--policy-data", "@"+data, "--record-arguments", "--mask", "/password", "--mask", "/users/*/key", "--keep", "1h", "--tool-changes", "deny").
		ok("grant 1", "kind access_token, id t1: echo, read_*", "grant 2", "everybody: ping", `{"root":"/srv"}`, "recorded for 1h0m0s, masked: /password, /users/*/key", "deny")
	got := s.server("demo")
	const grants = `[{"principal":{"kind":"access_token","id":"t1"},"tools":["echo","read_*"]},{"principal":{},"tools":["ping"]}]`
	if string(got.Grants) != grants || string(got.PolicyData) != `{"root":"/srv"}` || got.ToolChanges != "deny" ||
		!reflect.DeepEqual(got.RecordArguments, &store.RecordArguments{Mask: []string{"/password", "/users/*/key"}, Keep: time.Hour}) {
		t.Errorf("stored %+v", got)
	}
	s.run("server", "show", "demo").ok("grant 2", "everybody: ping")

	s.run("server", "update", "demo", "--grant", "nobody", "--record-arguments", "--keep", "2h").ok("nobody may use a tool", "recorded for 2h0m0s, masked: /password, /users/*/key")
	if got := s.server("demo"); string(got.Grants) != "[]" || string(got.PolicyData) != `{"root":"/srv"}` {
		t.Errorf("stored %+v", got)
	}
	s.runWith(`{"b":2}`, "server", "update", "demo", "--no-grants", "--no-record-arguments", "--policy-data", "@-", "--tool-changes", "").
		ok("none: tools are not narrowed", "not recorded", `{"b":2}`, "alarm")
	if got := s.server("demo"); got.Grants != nil || got.RecordArguments != nil || got.ToolChanges != "alarm" {
		t.Errorf("stored %+v", got)
	}
	s.run("server", "update", "demo", "--policy-data", "").ok()
	if got := s.server("demo"); got.PolicyData != nil {
		t.Errorf("stored %s", got.PolicyData)
	}
}

func TestServerPolicyFlagsReject(t *testing.T) {
	s := newShell(t).serve()
	s.run("server", "add", "demo", "--mcp", "http://h", "--grant", "*=echo").ok()
	list, broken := s.write("list.json", "[1]"), s.write("broken.json", `{"a":`)
	for _, test := range []struct {
		name, want string
		args       []string
	}{
		{"no grant, which may read as nobody or everybody", "--no-grants takes all grants back", []string{"--grant", ""}},
		{"a grant without tools", "KIND:ID=TOOL", []string{"--grant", "access_token:t1"}},
		{"a grant with no tool", "KIND:ID=TOOL", []string{"--grant", "access_token:t1="}},
		{"a grant for an id of any kind", "is not KIND:ID", []string{"--grant", "t1=echo"}},
		{"a grant for a kind", "is not KIND:ID", []string{"--grant", "access_token:=echo"}},
		{"a kind that is none", "grants.0.principal.kind", []string{"--grant", "token:t1=echo"}},
		{"a pattern in the middle", "grants.0.tools.0", []string{"--grant", "*=a*b"}},
		{"nobody and somebody", "KIND:ID=TOOL", []string{"--grant", "nobody", "--grant", "*=echo"}},
		{"grants and none", "without --grant", []string{"--grant", "*=echo", "--no-grants"}},
		{"a token's value", "value of a token", []string{"--grant", "access_token:arb_at_canary=echo"}},
		{"a mask alone, which would turn it on", "go with --record-arguments", []string{"--mask", "/a"}},
		{"a time alone", "go with --record-arguments", []string{"--keep", "1h"}},
		{"a mask without recording", "go with --record-arguments", []string{"--mask", "/a", "--no-record-arguments"}},
		{"a mask that is no pointer", "record_arguments.mask.0", []string{"--record-arguments", "--mask", "a"}},
		{"half a second", "whole seconds", []string{"--record-arguments", "--keep", "90.5s"}},
		{"too long", "record_arguments.keep_seconds", []string{"--record-arguments", "--keep", "721h"}},
		{"data on the command line", "@FILE", []string{"--policy-data", `{"a":1}`}},
		{"data of no file", "no such file", []string{"--policy-data", "@" + list + "x"}},
		{"data that is a list", "not a JSON object", []string{"--policy-data", "@" + list}},
		{"data that is cut", "not a JSON object", []string{"--policy-data", "@" + broken}},
		{"another change", "tool_changes", []string{"--tool-changes", "allow"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			out := s.run(append([]string{"server", "update", "demo"}, test.args...)...)
			out.fails(test.want)
			if strings.Contains(out.stderr, "canary") {
				t.Errorf("stderr %q", out.stderr)
			}
		})
	}
	s.t = t
	got := s.server("demo")
	if string(got.Grants) != `[{"principal":{},"tools":["echo"]}]` || got.PolicyData != nil || got.RecordArguments != nil || got.ToolChanges != "alarm" {
		t.Errorf("stored %+v", got)
	}
}
