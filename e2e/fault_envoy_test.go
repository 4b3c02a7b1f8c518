//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// TestKilledEnvoyComesBack: nobody answers while it is away, and nothing is
// allowed by the new one that the old one refused.
func TestKilledEnvoyComesBack(t *testing.T) {
	g := start(t)
	server := g.demoServer(t)
	_, token := g.addToken(t, server)
	id, revoked := g.addToken(t, server)
	g.object(t, "", "token", "delete", server, id)
	good := g.load(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")})
	bad := g.load(t, call{path: "/servers/" + server + "/rpc", token: revoked, body: rpc("1", "ping", "")})
	eventually(t, 5*time.Second, "requests are allowed", func() bool { return good.newest() == 200 })
	old := envoyOf(g.cmd.Process.Pid)
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "nobody answers", func() bool { return good.newest() == 0 })
	eventually(t, 20*time.Second, "requests are allowed again", func() bool { return good.newest() == 200 })
	if now := envoyOf(g.cmd.Process.Pid); now == 0 || now == old {
		t.Errorf("Envoy's process was %d, is %d", old, now)
	}
	only(t, "a good token", good.stop(), [2]int{200, 0}, [2]int{0, 0})
	only(t, "a deleted token", bad.stop(), [2]int{401, -31401}, [2]int{0, 0})
	if _, err := g.cli(t, "", "doctor"); err != nil {
		t.Errorf("doctor: %v", err)
	}
}

// TestInterruptEndsEverything: no child is left, no socket answers, exit 0; and
// SIGTERM does the same.
func TestInterruptEndsEverything(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			g := start(t)
			server := g.demoServer(t)
			_, token := g.addToken(t, server)
			streams := g.live(t)
			streams.listen(t, server, token, 2)
			envoy, began := envoyOf(g.cmd.Process.Pid), time.Now()
			if envoy == 0 {
				t.Fatal("there is no Envoy")
			}
			if err := g.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			select {
			case <-g.ended:
			case <-time.After(10 * time.Second):
				t.Fatal("still there after 10 s")
			}
			t.Logf("ended after %v", time.Since(began))
			if code := g.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if !gone(envoy) {
				t.Error("Envoy lives on")
			}
			if resp, err := overSocket(filepath.Join(g.dir, "admin.sock")).Get("http://arbiter/livez"); err == nil {
				_ = resp.Body.Close()
				t.Error("somebody answers on the admin socket")
			}
		})
	}
}

// TestKilledArbiterKeepsItsWord: Envoy goes with it; what was acknowledged just
// before holds after the next start, and sessions go on.
func TestKilledArbiterKeepsItsWord(t *testing.T) {
	g := start(t)
	echo := testfleet.NewEcho(t, testfleet.Config{})
	server := g.addServer(t, echo.Origin(), echo.Origin(), "--header", "X-Key=@"+temp(t, "key"))
	_, token := g.addToken(t, server, "--name", "kept")
	session := g.session(t, server, token)
	former := g.addServer(t, "", echo.Origin())
	_, ofFormer := g.addToken(t, former)
	id, deleted := g.addToken(t, server)
	g.expect(t, server, deleted, 200)
	g.object(t, "", "server", "delete", former)
	g.object(t, "", "token", "delete", server, id)
	envoy := envoyOf(g.cmd.Process.Pid)
	if err := g.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "Envoy ends with its parent", func() bool { return gone(envoy) })
	<-g.ended
	if _, err := g.cli(t, "", "server", "list"); err == nil {
		t.Error("the command line found somebody to ask")
	}

	echo.Reset()
	again, err := launchAt(g.dir, g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.stop)
	again.expect(t, server, deleted, 401)
	again.expect(t, former, ofFormer, 401)
	again.expect(t, server, token, 200)
	got := again.do(t, call{path: "/servers/" + server + "/mcp", token: token, body: rpc("2", "tools/list", ""), header: map[string]string{"Mcp-Session-Id": session}})
	if got.status != 200 {
		t.Errorf("the session of before: status %d, body %s", got.status, got.body)
	}
	for _, r := range echo.Requests() {
		if r.Value("X-Key") != "key" {
			t.Errorf("the upstream's header is %q", r.Value("X-Key"))
		}
	}
	if last := echo.Requests()[len(echo.Requests())-1].Value("Mcp-Session-Id"); last != testfleet.EchoSession {
		t.Errorf("the upstream saw session %q", last)
	}
	if _, err := os.Stat(filepath.Join(g.dir, "demo.header")); err != nil {
		t.Error(err)
	}
}

// expect wants one status of a plain call on /rpc.
func (g *gateway) expect(t *testing.T, server, token string, status int) {
	t.Helper()
	if got := g.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "ping", "")}); got.status != status {
		t.Errorf("status %d, want %d; body %s", got.status, status, got.body)
	}
}
