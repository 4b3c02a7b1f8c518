package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

func TestServerCommands(t *testing.T) {
	s := newShell(t).serve()
	s.status.BaseURL = "https://localhost:8443"
	s.run("server", "add", "demo", "--mcp", "http://127.0.0.1:9000/mcp", "--rpc=http://127.0.0.1:9000/rpc", "--eras", "legacy,modern",
		"--origin", "https://a.example", "--origin", "https://b.example", "--label", "team=a", "--max-body", "64KiB",
		"--call-limit", "90s", "--denials", "http", "--batches").
		ok("demo", "http://127.0.0.1:9000/mcp", "legacy, modern", "https://a.example, https://b.example", "team=a", "65536 bytes", "1m30s", "https://localhost:8443/servers/")
	id := printed[api.Server](s.run("server", "show", "demo", "--json")).ID
	s.run("server", "show", id).ok("demo", id)
	s.run("server", "show", strings.ToUpper(id)).ok(id)
	s.run("--json", "server", "add", "second", "--mcp", "http://h").ok(`"name": "second"`)
	s.run("server", "list").ok("NAME", "demo", "second", "enabled")
	if list := printed[api.List[api.Server]](s.run("server", "list", "--json")); len(list.Items) != 2 {
		t.Errorf("listed %v", list)
	}
	s.run("server", "update", "demo", "--name", "renamed", "--rpc", "", "--origin", "", "--label", "team=", "--no-batches").ok("renamed")
	got := printed[api.Server](s.run("server", "show", "renamed", "--json"))
	if got.RPC != "" || len(got.AllowedOrigins) != 0 || len(got.Labels) != 0 || got.Batches || got.Denials != "http" {
		t.Errorf("updated %v", got)
	}
	s.run("server", "disable", "renamed").ok("disabled " + id)
	s.run("server", "list").ok("disabled")
	s.run("server", "enable", "renamed", "--json").ok(`"enabled": true`)
	s.run("server", "delete", "renamed").ok("deleted "+id, "1 of 2 replicas confirmed", "100 streams ended", "12 ms", "b")
	s.run("server", "show", "renamed").fails(`there is no server "renamed"`)
	s.run("server", "show", id).fails("no such server")
	if got := printed[api.Deleted](s.run("server", "delete", "second", "--json")); got.Revocation.StreamsEnded != 100 {
		t.Errorf("deleted %v", got)
	}
}

func TestServerHeaders(t *testing.T) {
	s := newShell(t).serve()
	file := s.write("api-key", "canary-file\r\n")
	out := s.runWith("Bearer canary-stdin\n", "server", "add", "demo", "--mcp", "https://m.example",
		"--header", "X-Api-Key=@"+file, "--header", "Authorization=@-").ok("X-Api-Key, Authorization")
	if strings.Contains(out.stdout+out.stderr+s.log.String(), "canary") {
		t.Error("a value was printed or logged")
	}
	srv, err := s.store.ServerByName(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	headers, _, err := s.store.UpstreamHeaders(t.Context(), srv.ID)
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	for _, h := range headers {
		stored[h.Name] = h.Value.Reveal()
	}
	if stored["X-Api-Key"] != "canary-file" || stored["Authorization"] != "Bearer canary-stdin" {
		t.Errorf("stored %v", stored)
	}
	moved := s.run("server", "update", "demo", "--mcp", "https://n.example").ok()
	if !strings.Contains(moved.stderr, "headers were dropped (X-Api-Key, Authorization)") {
		t.Errorf("stderr %q", moved.stderr)
	}
	s.run("server", "update", "demo", "--header", "X-Api-Key=@"+file).ok("X-Api-Key")
	if got := printed[api.Server](s.run("server", "update", "demo", "--header", "", "--json")); len(got.HeaderNames) != 0 {
		t.Error("the header is still there")
	}
}

// A secret among the arguments is seen by every user of the machine.
func TestCommandsRejectSecretsAsArguments(t *testing.T) {
	s := newShell(t).serve()
	s.run("server", "add", "demo", "--mcp", "http://h").ok()
	value := printed[api.Token](s.run("token", "create", "demo", "--json")).Token
	for _, test := range []struct {
		name, want string
		args       []string
	}{
		{"header value", "process list", []string{"server", "add", "x", "--mcp", "http://h", "--header", "X-Key=canary"}},
		{"header without value", "process list", []string{"server", "add", "x", "--mcp", "http://h", "--header", "canary"}},
		{"header without file", "process list", []string{"server", "add", "x", "--mcp", "http://h", "--header", "X-Key=@"}},
		{"token's value as server", "value of a token", []string{"token", "list", value}},
		{"token's value as name", "value of a token", []string{"server", "add", value, "--mcp", "http://h"}},
		{"token's value as id", "value of a token", []string{"token", "delete", "demo", value}},
		{"token's value as request", "value of a token", []string{"explain", value}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			out := s.run(test.args...)
			out.fails(test.want)
			if strings.Contains(out.stderr+s.log.String(), "canary") || strings.Contains(out.stderr+s.log.String(), value) {
				t.Error("the secret was printed or logged")
			}
		})
	}
}

func TestTokenCommands(t *testing.T) {
	s := newShell(t).serve()
	s.run("server", "add", "demo", "--mcp", "http://h").ok()
	made := s.run("token", "create", "demo", "--name", "agent", "--expires", "30d", "--scope", "mcp:connect", "--scope", "tools:call:a,b").ok()
	value := strings.TrimSuffix(made.stdout, "\n")
	if _, err := token.Check(value, token.Access, token.MACKey{1}); err != nil {
		t.Errorf("stdout is not just the value: %q", made.stdout)
	}
	if !strings.Contains(made.stderr, "shown once") || strings.Contains(made.stderr, value) {
		t.Errorf("stderr %q", made.stderr)
	}
	row, _, err := s.store.TokenByDigest(t.Context(), token.DigestOf(value))
	if err != nil || row.Name != "agent" || !row.ExpiresAt.Equal(cliTime.Add(30*24*time.Hour)) || strings.Join(row.Scopes, " ") != "mcp:connect tools:call:a,b" {
		t.Errorf("stored %+v, %v", row, err)
	}
	whole := printed[api.Token](s.run("token", "create", "demo", "--expires", "12h", "--json"))
	if whole.Token == "" || !whole.ExpiresAt.Equal(cliTime.Add(12*time.Hour)) || whole.Scopes != nil {
		t.Errorf("created token %s until %s, scopes %q", whole.ID, whole.ExpiresAt, whole.Scopes)
	}
	list := s.run("token", "list", "demo").ok(row.ID, "agent", "mcp:connect tools:call:a,b", "not narrowed", "never")
	if strings.Contains(list.stdout, value) {
		t.Error("the value is in the list")
	}
	if list := printed[api.List[api.Token]](s.run("token", "list", "demo", "--json")); len(list.Items) != 2 {
		t.Errorf("listed %v", list)
	}
	s.run("token", "delete", "demo", row.ID).ok("deleted "+row.ID, "1 of 2 replicas confirmed", "100 streams ended", "12 ms")
	s.run("token", "delete", "demo", row.ID).fails("no such token")
}

func TestCommandsRejectWrongArguments(t *testing.T) {
	s := newShell(t).serve()
	s.run("server", "add", "demo", "--mcp", "http://h").ok()
	huge := s.write("huge", strings.Repeat("x", 65<<10))
	for _, test := range []struct {
		name, want string
		args       []string
	}{
		{"no command", "expected", []string{}},
		{"unknown command", "unexpected argument", []string{"bogus"}},
		{"unknown flag", "unknown flag", []string{"server", "list", "--bogus"}},
		{"no server", "expected", []string{"server", "show"}},
		{"no such server", `there is no server "x"`, []string{"server", "show", "x"}},
		{"no upstream", "at least one of mcp and rpc", []string{"server", "add", "x"}},
		{"name taken", "name: another server has it", []string{"server", "add", "demo", "--mcp", "http://h"}},
		{"bad URL", "mcp: ", []string{"server", "add", "x", "--mcp", "ftp://h"}},
		{"name like a UUID", "UUID", []string{"server", "add", "0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081", "--mcp", "http://h"}},
		{"reserved header", "reserved", []string{"server", "add", "x", "--mcp", "http://h", "--header", "Host=@" + s.write("v", "v")}},
		{"no header file", "no such file", []string{"server", "add", "x", "--mcp", "http://h", "--header", "X-Key=@" + s.dir + "/none"}},
		{"long header file", "longer than", []string{"server", "add", "x", "--mcp", "http://h", "--header", "X-Key=@" + huge}},
		{"no CA file", "no such file", []string{"server", "add", "x", "--mcp", "http://h", "--ca", s.dir + "/none"}},
		{"long CA file", "longer than", []string{"server", "add", "x", "--mcp", "http://h", "--ca", huge}},
		{"no CA in the file", "ca: ", []string{"server", "add", "x", "--mcp", "http://h", "--ca", s.write("ca", "hello")}},
		{"bad size", "--max-body", []string{"server", "add", "x", "--mcp", "http://h", "--max-body", "4GB"}},
		{"no size", "--max-body", []string{"server", "add", "x", "--mcp", "http://h", "--max-body", "KiB"}},
		{"half seconds", "--call-limit", []string{"server", "add", "x", "--mcp", "http://h", "--call-limit", "1500ms"}},
		{"nothing to update", "nothing to change", []string{"server", "update", "demo"}},
		{"expiry without unit", "--expires", []string{"token", "create", "demo", "--expires", "30"}},
		{"negative expiry", "--expires", []string{"token", "create", "demo", "--expires=-1d"}},
		{"expiry of nothing", "--expires", []string{"token", "create", "demo", "--expires", "0s"}},
		{"unknown scope", "scopes.0", []string{"token", "create", "demo", "--scope", "admin"}},
		{"unknown request", "arbiter-request-id", []string{"explain", "nothing"}},
		{"escape in an argument", `\x1b`, []string{"server", "show", "a\x1b[31m"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			s.run(test.args...).fails(test.want)
		})
	}
}

func TestNotAppliedIsSaid(t *testing.T) {
	s := newShell(t).serve()
	s.fleet.err = errors.New("envoy refused revision 1: bad CA")
	out := s.run("server", "add", "demo", "--mcp", "http://h").ok("demo")
	if !strings.Contains(out.stderr, "envoy refused revision 1: bad CA") {
		t.Errorf("stderr %q", out.stderr)
	}
}

func TestExplainShowsTheRecord(t *testing.T) {
	s := newShell(t).serve()
	record := `{"decision_id":"r-1","outcome":"deny","calls":[{"method":"tools/call","tool":"a\u001b[2J"}],"status":200,"principal":{"id":"x"}}`
	if err := s.store.AddDecisions(t.Context(), []store.Decision{{ID: "r-1", Time: cliTime, JSON: []byte(record)}}); err != nil {
		t.Fatal(err)
	}
	s.run("explain", "r-1", "--record").ok("decision id", "r-1", "outcome", "deny", "calls.0.method", "tools/call", `a\x1b[2J`, "status", "200", "principal.id")
	if got := s.run("explain", "r-1", "--record", "--json"); got.ok().stdout != record+"\n" {
		t.Errorf("printed %s", got.stdout)
	}
}

func TestCommandsSayWhenNothingRuns(t *testing.T) {
	s := newShell(t)
	commands := [][]string{{"server", "list"}, {"server", "show", "x"}, {"server", "add", "x", "--mcp", "http://h"}, {"token", "list", "x"}, {"explain", "x"}}
	for _, args := range commands {
		s.run(args...).fails("arbiter is not running here: nobody answers at " + s.dir)
	}
	// A socket that was left over by a killed process.
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(s.dir, adminSocket)})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range commands {
		s.run(args...).fails("start it with `make up` or `arbiter up`")
	}
	s.run("--data", s.dir+"/"+strings.Repeat("x", 110), "server", "list").fails("shorter data directory")
}

func TestUnreadableAnswers(t *testing.T) {
	for _, test := range []struct {
		name, want string
		status     int
		body       string
	}{
		{"not JSON", "cannot be read", 200, "<html>"},
		{"refusal that is no problem document", "502 Bad Gateway", 502, "<html>"},
		{"empty problem", "500 Internal Server Error", 500, "{}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newShell(t)
			listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(s.dir, adminSocket))
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})}
			done := make(chan error, 1)
			go func() { done <- server.Serve(listener) }()
			s.run("server", "list").fails(test.want)
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	s := newShell(t)
	s.run("--help").ok("server add", "token create", "doctor")
	s.run("server", "add", "--help").ok("--header=NAME=@FILE")
	s.run("version").ok("arbiter ")
	if printed[map[string]string](s.run("version", "--json"))["version"] == "" {
		t.Error("no version")
	}
}
