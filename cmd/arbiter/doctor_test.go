package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
)

// healthy is a gateway to which nothing is the matter.
func healthy(t *testing.T) *shell {
	t.Helper()
	s := newShell(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s.write(keyFile, strings.Repeat("0a", 32)+"\n")
	s.status = api.Status{
		Version: version(), Clock: cliTime, BaseURL: "https://localhost:8443", Listeners: []string{listener.Addr().String()},
		Database:     api.DatabaseStatus{Path: "arbiter.db", Revision: 7, Seq: 3},
		Envoy:        api.EnvoyStatus{Version: "1.40.0", Connected: 1, Ready: true, AppliedRevision: 7},
		Replicas:     []api.ReplicaStatus{{Name: "one", Connected: true, AppliedRevision: 7, ConfirmedSeq: 3}},
		Certificates: []api.CertificateStatus{{Name: "server", NotBefore: cliTime.Add(-time.Hour), NotAfter: cliTime.Add(30 * 24 * time.Hour)}},
		Keys:         api.KeyStatus{Sealing: true, TokenMAC: true, Sessions: 1},
	}
	return s
}

func TestDoctorFindsNothing(t *testing.T) {
	s := healthy(t).serve()
	out := s.run("doctor").ok("ok", "data directory", "envoy binary", "version 1.40.0", "certificates", "one connected")
	if strings.Contains(out.stdout, "problem ") {
		t.Errorf("a problem in\n%s", out.stdout)
	}
	if got := printed[diagnosis](s.run("doctor", "--json")); !got.OK || !slices.Equal(got.Status.Listeners, s.status.Listeners) {
		t.Errorf("diagnosis %v", got)
	}
}

func TestDoctorFindsProblems(t *testing.T) {
	for _, test := range []struct {
		name, check, want string
		spoil             func(*testing.T, *shell)
	}{
		{"open data directory", "data directory", "chmod 700", func(t *testing.T, s *shell) { chmod(t, s.dir, 0o755) }},
		{"open key", "key", "chmod 600", func(t *testing.T, s *shell) { chmod(t, filepath.Join(s.dir, keyFile), 0o640) }},
		{"missing key", "key", "IS MISSING", func(t *testing.T, s *shell) { remove(t, filepath.Join(s.dir, keyFile)) }},
		{"short key", "key", "32 bytes", func(_ *testing.T, s *shell) { s.write(keyFile, "0a0a") }},
		{"key that is no key", "key", "32 bytes", func(_ *testing.T, s *shell) { s.write(keyFile, strings.Repeat("zz", 32)) }},
		{"no Envoy", "envoy binary", "make envoy", func(_ *testing.T, s *shell) {
			s.envoy = func() (string, string, error) { return "", "", errors.New("no Envoy: run `make envoy`") }
		}},
		{"another version", "version", "use the same", func(_ *testing.T, s *shell) { s.status.Version = "v0.0.1" }},
		{"clocks apart", "clock", "away", func(_ *testing.T, s *shell) { s.status.Clock = cliTime.Add(time.Minute) }},
		{"clock before the certificate", "clock", "is the clock wrong", func(_ *testing.T, s *shell) { s.status.Certificates[0].NotBefore = cliTime.Add(time.Hour) }},
		{"no sealing key", "keys", "seals", func(_ *testing.T, s *shell) { s.status.Keys.Sealing = false }},
		{"no token key", "keys", "access tokens", func(_ *testing.T, s *shell) { s.status.Keys.TokenMAC = false }},
		{"no session key", "keys", "session", func(_ *testing.T, s *shell) { s.status.Keys.Sessions = 0 }},
		{"Envoy refuses", "envoy", "bad CA", func(_ *testing.T, s *shell) { s.status.Envoy.Error = "bad CA" }},
		{"Envoy away", "envoy", "not connected", func(_ *testing.T, s *shell) { s.status.Envoy.Ready = false }},
		{"Envoy late", "envoy", "revision 6 of 7", func(_ *testing.T, s *shell) { s.status.Envoy.AppliedRevision = 6 }},
		{"nobody listens", "port", "nobody listens", func(_ *testing.T, s *shell) { s.status.Listeners = append(s.status.Listeners, "127.0.0.1:1") }},
		{"no listener", "port", "no Envoy is connected", func(_ *testing.T, s *shell) { s.status.Listeners = nil }},
		{"no certificate", "certificates", "names no", func(_ *testing.T, s *shell) { s.status.Certificates = nil }},
		{"expired certificate", "certificates", "expired", func(_ *testing.T, s *shell) { s.status.Certificates[0].NotAfter = cliTime }},
		{"certificate ends soon", "certificates", "expires soon", func(_ *testing.T, s *shell) { s.status.Certificates[0].NotAfter = cliTime.Add(24 * time.Hour) }},
		{"no replica", "replicas", "no extauthz", func(_ *testing.T, s *shell) { s.status.Replicas = nil }},
		{"replica away", "replicas", "one is not connected", func(_ *testing.T, s *shell) { s.status.Replicas[0].Connected = false }},
		{"replica late", "replicas", "revision 6 of 7", func(_ *testing.T, s *shell) { s.status.Replicas[0].AppliedRevision = 6 }},
		{"replica unconfirmed", "replicas", "revocation 2 of 3", func(_ *testing.T, s *shell) { s.status.Replicas[0].ConfirmedSeq = 2 }},
		{"replica refuses", "replicas", "refused it", func(_ *testing.T, s *shell) { s.status.Replicas[0].LastError = "refused it" }},
		{"control's own", "control", "disk is full", func(_ *testing.T, s *shell) { s.status.Problems = []string{"disk is full"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := healthy(t).serve()
			test.spoil(t, s)
			out := s.run("doctor")
			if out.code != 1 || strings.Count(out.stderr, "\n") != 1 {
				t.Errorf("exit code %d, stderr %q", out.code, out.stderr)
			}
			var found []string
			for line := range strings.Lines(out.stdout) {
				if strings.HasPrefix(line, "problem") {
					found = append(found, line)
				}
			}
			if len(found) != 1 || !strings.Contains(found[0], test.check) || !strings.Contains(found[0], test.want) {
				t.Errorf("problems %q, want one of %q with %q", found, test.check, test.want)
			}
		})
	}
}

func TestDoctorWithoutArbiter(t *testing.T) {
	s := newShell(t)
	out := s.run("doctor")
	if out.code != 1 || !strings.Contains(out.stdout, "not running here") || !strings.Contains(out.stdout, "not there yet") || strings.Contains(out.stdout, "replicas") {
		t.Errorf("exit code %d:\n%s", out.code, out.stdout)
	}
	remove(t, s.dir)
	if out := s.run("doctor"); out.code != 1 || !strings.Contains(out.stdout, "is not there: `arbiter up` makes it") {
		t.Errorf("exit code %d:\n%s", out.code, out.stdout)
	}
	if out := s.run("doctor", "--json"); out.code != 1 || !strings.Contains(out.stdout, `"ok": false`) || strings.Contains(out.stdout, `"status"`) {
		t.Errorf("exit code %d:\n%s", out.code, out.stdout)
	}
}

func TestDialable(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", ":1": "127.0.0.1:1", "10.0.0.1:1": "10.0.0.1:1",
	} {
		if got := dialable(listen); got != want {
			t.Errorf("dialable(%q) = %q, want %q", listen, got, want)
		}
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}
