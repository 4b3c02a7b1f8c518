//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// canaries are secrets by the name under which a find is reported.
type canaries map[string]string

// places are texts that people, programs or backups see, by name.
type places map[string][]byte

// find lists where a canary is; a place may be excused for one of them.
func (p places) find(secrets canaries, excused func(place, secret string) bool) []string {
	var found []string
	for place, text := range p {
		for name, value := range secrets {
			if bytes.Contains(text, []byte(value)) && !excused(place, name) {
				found = append(found, name+" in "+place)
			}
		}
	}
	return found
}

// files adds every regular file of the data directory and checks who may read it.
func (p places) files(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		public := name == "ca.pem" || name == "tls/server.pem" // what clients are given
		if mode := info.Mode().Perm(); mode != want && !public || mode&0o022 != 0 {
			t.Errorf("%s has mode %04o, want %04o", name, mode, want)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		p[name] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// process adds the command line and the environment of a process.
func (p places) process(t *testing.T, name string, pid int) {
	t.Helper()
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		p[name+" "+file] = text
	}
}

// pages adds what is served over a unix socket.
func (p places) pages(t *testing.T, socket string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		resp, err := overSocket(socket).Get("http://host" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || len(text) == 0 {
			t.Errorf("%s: status %d, %d bytes, %v", path, resp.StatusCode, len(text), err)
		}
		p[path] = text
	}
}

// cliOutput adds what a command prints.
func (p places) cliOutput(t *testing.T, g *gateway, args ...string) {
	t.Helper()
	out, err := g.cli(t, "", args...)
	if err != nil {
		t.Error(err)
	}
	p["arbiter "+strings.Join(args, " ")] = []byte(out)
}

// TestNothingLeaks works with secrets in every way, then looks for them
// wherever somebody could see them.
func TestNothingLeaks(t *testing.T) {
	g := start(t, "ARBITER_LOG_LEVEL=debug")
	echo := testfleet.NewEcho(t, testfleet.Config{})
	hostile := testfleet.NewHostile(t, testfleet.Config{})
	secrets := canaries{"file header": "canary-file-5f1c", "stdin header": "canary-stdin-77ab", "argument": "canary-argument-e01d", "upstream session": testfleet.EchoSession}
	server := g.object(t, secrets["stdin header"], "server", "add", "leaky", "--mcp", echo.Origin(), "--rpc", echo.Origin(),
		"--header", "X-File=@"+temp(t, secrets["file header"]), "--header", "Authorization=@-")["id"].(string)
	broken := g.addServer(t, hostile.AfterOpening(t, "401"), hostile.URL(t, "garbage"), "--header", "X-File=@"+temp(t, secrets["file header"]))
	var ids []string
	secrets["token"], secrets["deleted token"], secrets["token of the broken server"] = leakyToken(t, g, server, &ids), leakyToken(t, g, server, &ids), leakyToken(t, g, broken, &ids)
	secrets["expired token"] = leakyToken(t, g, server, &ids, "--expires", "1s")
	secrets["foreign token"] = "arb_at_" + strings.Repeat("canary7", 7)
	secrets["session"] = g.session(t, server, secrets["token"])
	secrets["session of the broken server"] = g.session(t, broken, secrets["token of the broken server"])
	secrets["made-up session"] = "canary-session-91c2"
	demo, err := os.ReadFile(filepath.Join(g.dir, "demo.header"))
	if err != nil {
		t.Fatal(err)
	}
	_, secrets["demo token"], _ = strings.Cut(strings.TrimSpace(string(demo)), "Bearer ")
	homes := map[string]string{"demo token": "demo.header", "store key": "key", "server key": "tls/server.key", "authority key": "tls/ca.key"}
	for secret, home := range homes {
		if secret != "demo token" {
			secrets[secret] = longestLine(t, filepath.Join(g.dir, home))
		}
	}
	requests := leakyTraffic(t, g, server, broken, secrets)
	g.object(t, "", "token", "delete", server, ids[1])
	requests = append(requests, leakyTraffic(t, g, server, broken, secrets)...)
	seen := false
	for _, r := range echo.Requests() {
		seen = seen || r.Value("Authorization") == secrets["stdin header"] && r.Value("X-File") == secrets["file header"]
	}
	if !seen {
		t.Fatal("the upstream never got its headers: the run proves nothing")
	}

	p := places{"stdout of up": g.out.Bytes()}
	for _, id := range requests {
		explain(t, g, id)
		p.cliOutput(t, g, "explain", id, "--json")
		p.cliOutput(t, g, "explain", "--record", id, "--json")
	}
	p.cliOutput(t, g, "doctor", "--json")
	p.cliOutput(t, g, "server", "list", "--json")
	p.cliOutput(t, g, "server", "show", server, "--json")
	p.cliOutput(t, g, "token", "list", server, "--json")
	p.files(t, g.dir) // stderr.log, decisions.jsonl, the database with its -wal, run/
	p.process(t, "arbiter", g.cmd.Process.Pid)
	p.process(t, "envoy", envoyOf(g.cmd.Process.Pid))
	p.pages(t, filepath.Join(g.dir, "admin.sock"), "/metrics", "/readyz", "/api/v1/status", "/api/v1/servers")
	p.pages(t, filepath.Join(g.dir, "run/envoy-admin.sock"), "/config_dump?include_eds", "/clusters?format=json", "/stats", "/listeners", "/server_info", "/certs")
	for _, name := range []string{"stderr.log", "decisions.jsonl", "arbiter.db", "arbiter.db-wal", "run/envoy.json"} {
		if len(p[name]) == 0 {
			t.Errorf("%s is missing or empty: it was not searched", name)
		}
	}
	excused := func(place, secret string) bool { return homes[secret] == place }
	for _, found := range p.find(secrets, excused) {
		t.Error(found)
	}

	// The search can find: what may be seen is seen, and a planted canary too.
	for place, known := range map[string]string{"decisions.jsonl": ids[0], "stderr.log": ids[1], "arbiter.db": "SQLite format", "arbiter.db-wal": "leaky", "/config_dump?include_eds": "x-arbiter-cluster", "arbiter cmdline": "up"} {
		if !bytes.Contains(p[place], []byte(known)) {
			t.Errorf("%q is not in %s: was it read at all?", known, place)
		}
	}
	if err := os.WriteFile(filepath.Join(g.dir, "planted"), []byte("x"+secrets["token"]+"y"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.files(t, g.dir)
	if found := p.find(secrets, excused); len(found) != 1 || found[0] != "token in planted" {
		t.Errorf("with a planted canary the search finds %q", found)
	}
}

// longestLine is the part of a key file that nobody could guess.
func longestLine(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	longest := ""
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); len(line) > len(longest) {
			longest = line
		}
	}
	return longest
}

func leakyToken(t *testing.T, g *gateway, server string, ids *[]string, flags ...string) string {
	t.Helper()
	id, value := g.addToken(t, server, flags...)
	*ids = append(*ids, id)
	return value
}

// leakyTraffic does everything that can be done with a secret, well or badly,
// and returns the ids of the requests.
func leakyTraffic(t *testing.T, g *gateway, server, broken string, secrets canaries) []string {
	t.Helper()
	tool := rpc("1", "tools/call", `{"name":"echo","arguments":{"text":"`+secrets["argument"]+`"}}`)
	at := func(server, path string) string { return "/servers/" + server + path }
	header := func(secret string) map[string]string { return map[string]string{"Mcp-Session-Id": secrets[secret]} }
	var ids []string
	for _, c := range []call{
		{path: at(server, "/rpc"), token: secrets["token"], body: tool},
		{path: at(server, "/rpc"), token: secrets["deleted token"], body: tool},
		{path: at(server, "/rpc"), token: secrets["expired token"], body: tool},
		{path: at(server, "/rpc"), token: secrets["foreign token"], body: tool},
		{path: at(server, "/rpc"), token: secrets["token of the broken server"], body: tool},
		{path: at(broken, "/rpc"), token: secrets["token of the broken server"], body: tool},
		{path: at(server, "/mcp"), token: secrets["token"], body: tool, header: header("session")},
		{path: at(server, "/mcp"), token: secrets["token"], body: tool, header: header("made-up session")},
		{path: at(server, "/mcp"), token: secrets["token"], body: tool, header: header("session of the broken server")},
		{path: at(broken, "/mcp"), token: secrets["token of the broken server"], body: tool, header: header("session of the broken server")},
		{path: at(server, "/rpc"), token: secrets["token"], body: tool[:len(tool)-1]},
		{path: at(server, "/rpc"), token: secrets["token"] + "," + secrets["token"], body: tool},
		{path: at(server, "/rpc") + "?access_token=" + secrets["token"], body: tool},
		{path: at(server, "/nothing/") + secrets["token"], token: secrets["token"], body: tool},
		{path: at(server, "/mcp"), method: "DELETE", token: secrets["token"], header: header("made-up session")},
	} {
		got := g.do(t, c)
		if id := got.header.Get("Arbiter-Request-Id"); !strings.HasPrefix(c.path, at(server, "/nothing/")) {
			ids = append(ids, id)
		}
		for name, value := range secrets {
			if strings.Contains(got.body, value) && name != "argument" {
				t.Errorf("%s: the answer shows the %s", c.path, name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if resp, err := g.open(t, ctx, call{path: at(server, "/mcp"), method: http.MethodGet, token: secrets["token"], header: header("session")}); err == nil {
		resp.Body.Close()
	}
	return ids
}

// explain waits until the record of a request can be read.
func explain(t *testing.T, g *gateway, id string) {
	t.Helper()
	eventually(t, 5*time.Second, "request "+id+" is explained", func() bool {
		_, err := g.cli(t, "", "explain", id)
		return err == nil
	})
}
