//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// apart is a fleet in which each pair has a data directory of its own and
// reaches control over a relay: what happens to the relay happens between them.
type apart struct {
	*fleet
	relays []*testfleet.Relay // of each pair
}

// startApart runs a control and n pairs until the test ends.
func startApart(t *testing.T, n int, env ...string) *apart {
	t.Helper()
	addrs := closedPorts(t, n)
	a := &apart{fleet: &fleet{gateway: oneOf(t, addrs[0], env)}}
	for _, addr := range addrs {
		g := oneOf(t, addr, env)
		a.relays = append(a.relays, testfleet.NewSocketRelay(t, filepath.Join(g.dir, "run/xds.sock"), filepath.Join(a.dir, "run/xds.sock")))
		a.pairs = append(a.pairs, &pair{g, a.process(t, "extauthz", "", g), a.process(t, "envoy", "", g)})
	}
	a.control = a.process(t, "control", "", a.gateway)
	for _, p := range a.processes() {
		p.start(t)
	}
	a.awaitReady(t)
	a.roots = a.pairs[0].roots
	return a
}

// oneOf is a gateway with a data directory of its own.
func oneOf(t *testing.T, addr string, env []string) *gateway {
	t.Helper()
	dir, err := os.MkdirTemp("", "arb") // t.TempDir can be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	g := &gateway{dir: dir, addr: addr, base: "https://localhost:" + port}
	g.env = append(append(os.Environ(), "ARBITER_DATA="+dir, "ARBITER_LISTEN="+addr, "ARBITER_ENVOY_CONCURRENCY=1"), env...)
	return g
}

// ask sends one request to control's API and reads the answer's object.
func (g *gateway) ask(method, path, body string) (status int, object map[string]any, err error) {
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://arbiter/api/v1"+path, in)
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := overSocket(filepath.Join(g.dir, "admin.sock")).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	object = map[string]any{}
	return resp.StatusCode, object, json.NewDecoder(resp.Body).Decode(&object)
}

// mustAsk is ask where any error and any other status ends the test.
func (g *gateway) mustAsk(t *testing.T, method, path, body string, want int) map[string]any {
	t.Helper()
	status, object, err := g.ask(method, path, body)
	if err != nil || status != want {
		t.Fatalf("%s %s: status %d, %v, %v; want %d", method, path, status, object, err, want)
	}
	return object
}

// tokens makes n of them for a server, over the API.
func (g *gateway) tokens(t *testing.T, server string, n int) (ids, values []string) {
	t.Helper()
	for i := range n {
		made := g.mustAsk(t, "POST", "/servers/"+server+"/tokens", fmt.Sprintf(`{"name":"token %d"}`, i), 201)
		ids, values = append(ids, made["id"].(string)), append(values, made["token"].(string))
	}
	return ids, values
}

// metrics are the numbers that the extauthz of a pair shows, without labels.
func (p *pair) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := overSocket(filepath.Join(p.dir, "run/extauthz-admin.sock")).Get("http://arbiter/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	found := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			found[name] = value
		}
	}
	return found
}

// envoyPid is the pair's Envoy itself, 0 while there is none.
func (p *pair) envoyPid() int {
	if p.envoy.isGone() {
		return 0
	}
	return envoyOf(p.envoy.pid())
}

// killEnvoy ends the role and waits until its Envoy, which the kernel kills, has
// left the port.
func (p *pair) killEnvoy(t *testing.T) {
	t.Helper()
	child := p.envoyPid()
	p.envoy.kill(t)
	if child != 0 {
		_ = syscall.Kill(child, syscall.SIGKILL)
		eventually(t, 10*time.Second, "Envoy is gone", func() bool { return gone(child) })
	}
}
