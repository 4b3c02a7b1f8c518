//go:build e2e

package e2e

import (
	"io"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// TestRolesAsProcesses takes each process away and brings it back, in one
// gateway: what one part leaves behind the next one finds.
func TestRolesAsProcesses(t *testing.T) {
	r := startRoles(t, "ARBITER_LEASE=5s")
	echo := testfleet.NewEcho(t, testfleet.Config{})
	server := r.addServer(t, echo.Origin(), echo.Origin(), "--header", "X-Key=@"+temp(t, "key"))
	_, token := r.addToken(t, server)
	id, revoked := r.addToken(t, server)
	f := &rolesFault{r, server, token, revoked}
	f.works(t)
	r.expect(t, server, revoked, 200)
	r.object(t, "", "token", "delete", server, id)
	r.expect(t, server, revoked, 401)
	envoy := envoyOf(r.running["envoy"].Process.Pid)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"control restarted within the lease", f.controlRestarted},
		{"a token deleted by a control that just came back", f.deletedAfterRestart},
		{"a server disabled by a control that just came back", f.disabledAfterRestart},
		{"extauthz killed under load", f.extauthzKilled},
		{"extauthz stopped", f.extauthzStopped},
		{"a token deleted while extauthz is stopped", f.deletedWhileStopped},
		{"control killed", f.controlKilled},
	} {
		if !t.Run(step.name, step.run) {
			return // the next one needs a gateway that works
		}
	}
	if now := envoyOf(r.running["envoy"].Process.Pid); now != envoy {
		t.Errorf("Envoy was restarted: its process was %d, is %d", envoy, now)
	}
	for _, request := range echo.Requests() {
		if request.Value("X-Key") != "key" {
			t.Fatal("a request went out without the server's own header")
		}
	}
}

// rolesFault is the gateway that things happen to.
type rolesFault struct {
	*roles
	server, token, revoked string
}

func (f *rolesFault) ping(token string) call {
	return call{path: "/servers/" + f.server + "/rpc", token: token, body: rpc("1", "ping", "")}
}

func (f *rolesFault) streams(t *testing.T, n int) *live {
	t.Helper()
	l := f.live(t)
	l.listen(t, f.server, f.token, n)
	return l
}

func allEnded(l *live) func() bool {
	return func() bool { open, _ := l.counts(); return open == 0 }
}

func (f *rolesFault) works(t *testing.T) {
	t.Helper()
	eventually(t, 15*time.Second, "it works again", func() bool {
		got, err := f.try(t, f.ping(f.token))
		return err == nil && got.status == 200
	})
	fresh, value := f.addToken(t, f.server)
	eventually(t, 5*time.Second, "a new token works", func() bool { return f.do(t, f.ping(value)).status == 200 })
	f.object(t, "", "token", "delete", f.server, fresh)
	f.expect(t, f.server, value, 401)
}

// controlRestarted: neither calls nor streams notice.
func (f *rolesFault) controlRestarted(t *testing.T) {
	streams := f.streams(t, 3)
	good, bad := f.load(t, f.ping(f.token)), f.load(t, f.ping(f.revoked))
	f.kill(t, "control")
	f.run(t, "control")
	eventually(t, 10*time.Second, "the command line is answered", func() bool {
		_, err := f.cli(t, "", "server", "list")
		return err == nil
	})
	f.works(t)
	only(t, "a good token", good.stop(), [2]int{200, 0})
	only(t, "a deleted token", bad.stop(), [2]int{401, -31401})
	if open, _ := streams.counts(); open != 3 {
		t.Errorf("%d of 3 streams live", open)
	}
}

// deletedAfterRestart: a control that does not know yet who else holds a lease
// waits for them all the same.
func (f *rolesFault) deletedAfterRestart(t *testing.T) {
	id, value := f.addToken(t, f.server)
	f.expect(t, f.server, value, 200)
	f.afterRestart(t, http.MethodDelete, "/servers/"+f.server+"/tokens/"+id)
	for range 20 {
		if got := f.do(t, f.ping(value)); got.status != 401 && got.status != 503 {
			t.Fatalf("after the delete was answered: status %d", got.status)
		}
	}
	f.works(t)
}

// disabledAfterRestart is the same for a server.
func (f *rolesFault) disabledAfterRestart(t *testing.T) {
	f.expect(t, f.server, f.token, 200)
	answer := f.afterRestart(t, http.MethodPost, "/servers/"+f.server+"/disable")
	if answer["applied"] == true {
		for range 20 {
			if got := f.do(t, f.ping(f.token)); got.status != 403 && got.status != 503 {
				t.Errorf("after the change was answered as applied: status %d", got.status)
				break
			}
		}
	}
	f.object(t, "", "server", "enable", f.server)
	f.works(t)
}

// afterRestart takes control away until extauthz asks for it only once a
// second, brings it back, and makes one change before extauthz has noticed.
func (f *rolesFault) afterRestart(t *testing.T, method, path string) (answer map[string]any) {
	t.Helper()
	f.kill(t, "control")
	time.Sleep(2500 * time.Millisecond) // the lease runs on
	f.run(t, "control")
	api := overSocket(filepath.Join(f.dir, "admin.sock"))
	eventually(t, 10*time.Second, "control is there", func() bool {
		req, err := http.NewRequest(method, "http://arbiter/api/v1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := api.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: status %d, %s", path, resp.StatusCode, body)
		}
		answer = reply{body: string(body)}.message(t)
		return true
	})
	t.Logf("%s: %v", path, answer)
	return answer
}

// extauthzKilled: 503 and nothing else until it is back; streams end at once.
func (f *rolesFault) extauthzKilled(t *testing.T) {
	streams := f.streams(t, 10)
	good, bad := f.load(t, f.ping(f.token)), f.load(t, f.ping(f.revoked))
	eventually(t, 5*time.Second, "requests are allowed", func() bool { return good.newest() == 200 })
	f.kill(t, "extauthz")
	eventually(t, 2*time.Second, "the streams end", allEnded(streams))
	eventually(t, 3*time.Second, "requests get 503", func() bool { return good.newest() == 503 })
	for _, c := range []call{f.ping(f.token), {path: "/servers/" + f.server + "/mcp", token: f.token, body: initialize}, f.ping("")} {
		if got := f.do(t, c); got.status != 503 || got.code() != -31503 || got.header.Get("Arbiter-Request-Id") == "" {
			t.Errorf("%s: status %d, body %s", c.path, got.status, got.body)
		}
	}
	f.run(t, "extauthz")
	eventually(t, 10*time.Second, "requests are allowed again", func() bool { return good.newest() == 200 })
	f.works(t)
	only(t, "a good token", good.stop(), [2]int{200, 0}, [2]int{503, -31503})
	only(t, "a deleted token", bad.stop(), [2]int{401, -31401}, [2]int{503, -31503})
}

// extauthzStopped: a frozen process can cut nothing, so its streams end by
// themselves; it is back with the first request after it was let go on.
func (f *rolesFault) extauthzStopped(t *testing.T) {
	streams := f.streams(t, 10)
	f.signal(t, "extauthz", syscall.SIGSTOP)
	eventually(t, 5*time.Second, "the streams end", allEnded(streams)) // the lease is 5 s
	if got := f.do(t, f.ping(f.token)); got.status != 503 || got.code() != -31503 {
		t.Errorf("status %d, body %s", got.status, got.body)
	}
	f.signal(t, "extauthz", syscall.SIGCONT)
	f.works(t)
}

// deletedWhileStopped: the answer waits for the lease, names who is missing,
// and who is let go on afterwards refuses.
func (f *rolesFault) deletedWhileStopped(t *testing.T) {
	id, value := f.addToken(t, f.server)
	f.expect(t, f.server, value, 200)
	f.signal(t, "extauthz", syscall.SIGSTOP)
	began := time.Now()
	answer := f.object(t, "", "token", "delete", f.server, id)["revocation"].(map[string]any)
	took := time.Since(began)
	late := f.load(t, f.ping(value))
	f.signal(t, "extauthz", syscall.SIGCONT)
	if missing, _ := answer["missing"].([]any); answer["replicas_confirmed"] != 0.0 || len(missing) != 1 {
		t.Errorf("the answer says %v", answer)
	}
	if took < 3*time.Second || took > 9*time.Second {
		t.Errorf("answered after %v with a lease of 5 s", took)
	}
	eventually(t, 10*time.Second, "the token is refused", func() bool { return late.newest() == 401 })
	for _, o := range late.stop() {
		if o.status != 503 && o.status != 401 {
			t.Errorf("after the delete was answered: status %d", o.status)
		}
	}
	f.works(t)
}

// controlKilled: what is known works until the lease ends, then nothing does.
func (f *rolesFault) controlKilled(t *testing.T) {
	streams := f.streams(t, 10)
	_, unknown := f.addToken(t, f.server) // never used: not in the cache
	good, bad := f.load(t, f.ping(f.token)), f.load(t, f.ping(f.revoked))
	eventually(t, 5*time.Second, "requests are allowed", func() bool { return good.newest() == 200 })
	began := time.Now()
	f.kill(t, "control")
	if got := f.do(t, f.ping(unknown)); got.status != 503 || got.code() != -31503 {
		t.Errorf("a token that nobody can look up: status %d, body %s", got.status, got.body)
	}
	if open, _ := streams.counts(); open != 10 || good.newest() != 200 {
		t.Errorf("within the lease %d of 10 streams live, the last status is %d", open, good.newest())
	}
	eventually(t, 8*time.Second, "requests get 503", func() bool { return good.newest() == 503 })
	if held := time.Since(began); held < 3*time.Second || held > 6*time.Second {
		t.Errorf("went on for %v with a lease of 5 s", held)
	}
	eventually(t, 2*time.Second, "the streams end", allEnded(streams))
	f.run(t, "control")
	eventually(t, 15*time.Second, "requests are allowed again", func() bool { return good.newest() == 200 })
	f.works(t)
	only(t, "a good token", good.stop(), [2]int{200, 0}, [2]int{503, -31503})
	only(t, "a deleted token", bad.stop(), [2]int{401, -31401}, [2]int{503, -31503})
}
