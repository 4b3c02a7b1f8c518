//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // a database from the future is made here
)

// ended is what became of a start that must not succeed.
type ended struct {
	code           int
	stdout, stderr string
}

// attempt runs a command to its end, which must come soon.
func attempt(t *testing.T, env []string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, arbiter, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("arbiter %s is still there after 20 s:\n%s", strings.Join(args, " "), errs.String())
	}
	return ended{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// database is a data directory of a gateway that ran once.
func database(t *testing.T) string {
	t.Helper()
	g, err := launch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g.stop()
	return g.dir
}

func TestStartRefused(t *testing.T) {
	write := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var other [32]byte
	rand.Read(other[:])
	_, used, _ := net.SplitHostPort(shared.addr)
	config := temp(t, "listen: 127.0.0.1:1\nlissten: 127.0.0.1:2\n")
	for _, test := range []struct {
		name  string
		ran   bool // in the data directory of a gateway that ran
		spoil func(t *testing.T, dir string)
		env   []string
		args  []string
		say   string
	}{
		{name: "a second start", env: []string{"ARBITER_DATA=" + shared.dir}, say: "already runs in"},
		{name: "control beside up", env: []string{"ARBITER_DATA=" + shared.dir}, args: []string{"control"}, say: "already runs in"},
		{name: "extauthz beside up", env: []string{"ARBITER_DATA=" + shared.dir}, args: []string{"extauthz"}, say: "already runs in"},
		{name: "envoy beside up", env: []string{"ARBITER_DATA=" + shared.dir}, args: []string{"envoy"}, say: "already runs in"},
		{name: "a port in use", env: []string{"ARBITER_LISTEN=127.0.0.1:" + used}, say: "127.0.0.1:" + used},
		{name: "a port in use, by all addresses", env: []string{"ARBITER_LISTEN=0.0.0.0:" + used}, say: "0.0.0.0:" + used},
		{name: "the admin port in use", env: []string{"ARBITER_ADMIN_LISTEN=127.0.0.1:" + used}, say: "admin_listen"},
		{name: "no Envoy", env: []string{"ARBITER_ENVOY=/nonexistent"}, say: "ARBITER_ENVOY"},
		{name: "an Envoy that is none", env: []string{"ARBITER_ENVOY=/bin/true"}, say: "ARBITER_ENVOY"},
		{name: "no Envoy in the cache", env: []string{"XDG_CACHE_HOME=/nonexistent"}, say: "make envoy"},
		{name: "an unknown key", env: []string{"ARBITER_LISSTEN=127.0.0.1:2"}, say: "ARBITER_LISSTEN"},
		{name: "an unknown key in the file", args: []string{"up", "--config", config}, say: "lissten"},
		{name: "no such file", args: []string{"up", "--config", "/nonexistent"}, say: "/nonexistent"},
		{name: "a file that is no YAML", args: []string{"up", "--config", temp(t, "{[")}, say: "configuration"},
		{name: "a lease that is too long", env: []string{"ARBITER_LEASE=61s"}, say: "ARBITER_LEASE"},
		{name: "a listener that is none", env: []string{"ARBITER_LISTEN=8443"}, say: "ARBITER_LISTEN"},
		{name: "a base URL with a path", env: []string{"ARBITER_BASE_URL=https://localhost:1/x"}, say: "ARBITER_BASE_URL"},
		{name: "half a key pair", env: []string{"ARBITER_TLS_CERT=/nonexistent"}, say: "tls_key"},
		{name: "a certificate that is missing", env: []string{"ARBITER_TLS_CERT=/nonexistent", "ARBITER_TLS_KEY=/nonexistent"}, say: "/nonexistent"},
		{name: "a data directory that is a file", env: []string{"ARBITER_DATA=" + config}, say: "data directory"},
		{name: "a missing key", ran: true, spoil: func(_ *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "key")) }, say: "key is missing"},
		{name: "a key of another database", ran: true, spoil: write("key", hex.EncodeToString(other[:])+"\n"), say: "key"},
		{name: "half a key", ran: true, spoil: write("key", "00ff\n"), say: "32 bytes"},
		{name: "a database that is none", spoil: func(t *testing.T, dir string) {
			write("key", hex.EncodeToString(other[:]))(t, dir)
			write("arbiter.db", strings.Repeat("this is no database ", 500))(t, dir)
		}, say: "database"},
		{name: "a newer database", ran: true, spoil: func(t *testing.T, dir string) {
			db, err := sql.Open("sqlite", filepath.Join(dir, "arbiter.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)"); err != nil {
				t.Fatal(err)
			}
		}, say: "newer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if test.ran {
				dir = database(t)
			}
			if test.spoil != nil {
				test.spoil(t, dir)
			}
			if test.args == nil {
				test.args = []string{"up"}
			}
			got := attempt(t, append([]string{"ARBITER_DATA=" + dir, "ARBITER_LISTEN=" + closedPort(t)}, test.env...), test.args...)
			if got.code != 1 || got.stdout != "" {
				t.Errorf("exit code %d, stdout %q", got.code, got.stdout)
			}
			line := strings.TrimSuffix(got.stderr, "\n")
			if strings.Contains(line, "\n") || !strings.HasPrefix(line, "arbiter: ") || !strings.Contains(line, test.say) {
				t.Errorf("stderr is not one line that says %q:\n%s", test.say, got.stderr)
			}
		})
	}
	shared.expect(t, shared.demo(t), "", 401) // and the one that runs was not disturbed
}

// TestReadyBlockWorksAsPrinted: both commands are pasted into a shell, and a
// second start makes the token of the first one useless.
func TestReadyBlockWorksAsPrinted(t *testing.T) {
	g := start(t)
	commands := printed(t, g)
	run := func(command string) string {
		out, err := exec.Command("bash", "-c", command).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := run(commands[0]); !strings.Contains(out, `"text":"hello"`) {
		t.Errorf("/rpc: %s", out)
	}
	if out := run(commands[1]); !strings.Contains(out, `"name":"echo"`) {
		t.Errorf("/mcp: %s", out)
	}
	old, err := os.ReadFile(filepath.Join(g.dir, "demo.header"))
	if err != nil {
		t.Fatal(err)
	}
	server := g.demo(t)
	g.stop()
	again, err := launchAt(g.dir, g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.stop)
	if now := again.demo(t); now != server {
		t.Errorf("the demo server was %s, is %s", server, now)
	}
	_, value, _ := strings.Cut(strings.TrimSpace(string(old)), "Bearer ")
	again.expect(t, server, value, 401)
	tokens := again.object(t, "", "token", "list", "demo")["items"].([]any)
	if len(tokens) != 1 {
		t.Errorf("%d tokens of the demo server, want the fresh one", len(tokens))
	}
	if out := run(printed(t, again)[0]); !strings.Contains(out, `"text":"hello"`) {
		t.Errorf("/rpc after the second start: %s", out)
	}
}

// printed are the commands of the ready block.
func printed(t *testing.T, g *gateway) []string {
	t.Helper()
	var commands []string
	for line := range strings.Lines(g.out.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") || strings.HasPrefix(line, "SESSION=") {
			commands = append(commands, line)
		}
	}
	if len(commands) != 2 || !strings.Contains(g.out.String(), g.base) || !strings.Contains(g.out.String(), filepath.Join(g.dir, "ca.pem")) {
		t.Fatalf("the ready block:\n%s", g.out.String())
	}
	if strings.Contains(g.out.String(), "arb_at_") {
		t.Error("the ready block shows a token")
	}
	return commands
}

// TestHealthListenerServesNothingElse: on TCP there is never the API.
func TestHealthListenerServesNothingElse(t *testing.T) {
	admin := closedPort(t)
	g := start(t, "ARBITER_ADMIN_LISTEN="+admin)
	socket := overSocket(filepath.Join(g.dir, "admin.sock"))
	for _, test := range []struct {
		path        string
		onTCP, onUn int
		body        string
	}{
		{"/livez", 200, 200, "ok"},
		{"/readyz", 200, 200, `"ready":true`},
		{"/metrics", 200, 200, "arbiter_lease_held 1"},
		{"/api/v1/status", 404, 200, ""},
		{"/api/v1/servers", 404, 200, ""},
		{"/api/v1/openapi.json", 404, 200, ""},
		{"//api/v1/servers", 404, 0, ""},
		{"/livez/../api/v1/servers", 404, 0, ""},
		{"/debug/pprof/", 404, 404, ""},
		{"/", 404, 404, ""},
	} {
		t.Run(test.path, func(t *testing.T) {
			for _, side := range []struct {
				client *http.Client
				host   string
				want   int
			}{{http.DefaultClient, admin, test.onTCP}, {socket, "arbiter", test.onUn}} {
				req, err := http.NewRequest(http.MethodGet, "http://"+side.host+test.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := (&http.Client{Transport: side.client.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
					return http.ErrUseLastResponse
				}}).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				refused := resp.StatusCode == 404 || resp.StatusCode == 301 || resp.StatusCode == 307 // to the clean path
				if side.want != 0 && resp.StatusCode != side.want && !(side.want == 404 && refused) {
					t.Errorf("%s: status %d, want %d", side.host, resp.StatusCode, side.want)
				}
				if side.want == 200 && !strings.Contains(string(body), test.body) {
					t.Errorf("%s: %s", side.host, body)
				}
			}
		})
	}
	post, err := http.Post("http://"+admin+"/api/v1/servers", "application/json", strings.NewReader(`{"name":"x","mcp":"http://127.0.0.1:1"}`))
	if err != nil {
		t.Fatal(err)
	}
	post.Body.Close()
	if post.StatusCode != 404 {
		t.Errorf("POST to the API over TCP: status %d", post.StatusCode)
	}
}

// TestReadySaysWhyNot: without Envoy nothing is ready, and doctor exits with 1.
func TestReadySaysWhyNot(t *testing.T) {
	r := startRoles(t)
	well := attempt(t, []string{"ARBITER_DATA=" + r.dir}, "doctor", "--json")
	if well.code != 0 || !strings.Contains(well.stdout, `"ok": true`) {
		t.Errorf("doctor: exit code %d\n%s%s", well.code, well.stdout, well.stderr)
	}
	socket := overSocket(filepath.Join(r.dir, "admin.sock"))
	problems := func() (status int, found []string) {
		resp, err := socket.Get("http://arbiter/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body struct {
			Problems []string `json:"problems"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body.Problems
	}
	for _, role := range []string{"envoy", "extauthz"} {
		r.kill(t, role)
		eventually(t, 5*time.Second, "it is known that "+role+" is missing", func() bool {
			status, found := problems()
			return status == 503 && strings.Contains(strings.ToLower(strings.Join(found, " ")), "no "+role)
		})
		if got := attempt(t, []string{"ARBITER_DATA=" + r.dir}, "doctor"); got.code != 1 || !strings.Contains(got.stdout, "problem") {
			t.Errorf("doctor without %s: exit code %d\n%s", role, got.code, got.stdout)
		}
	}
	r.kill(t, "control")
	if got := attempt(t, []string{"ARBITER_DATA=" + r.dir}, "doctor"); got.code != 1 || !strings.Contains(got.stdout, "not running") {
		t.Errorf("doctor without control: exit code %d\n%s", got.code, got.stdout)
	}
}
