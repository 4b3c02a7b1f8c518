package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadSettings(t *testing.T) {
	for _, row := range []struct {
		name  string
		file  string
		env   []string
		want  string // part of the error; "" is none
		check func(*settings) bool
	}{
		{"defaults", "", nil, "", func(s *settings) bool {
			return s.Listen.String() == "127.0.0.1:8443" && s.BaseURL == "https://localhost:8443" && s.Lease == 15*time.Second
		}},
		{"base URL follows listen", "", []string{"ARBITER_LISTEN=0.0.0.0:443"}, "", func(s *settings) bool { return s.BaseURL == "https://localhost" }},
		{"base URL of an address", "", []string{"ARBITER_LISTEN=[2001:db8::1]:8443"}, "", func(s *settings) bool { return s.BaseURL == "https://[2001:db8::1]:8443" }},
		{"file", "listen: 127.0.0.1:9000\nhosts: [a.example, b.example]\nlease: 30s\n", nil, "", func(s *settings) bool {
			return s.Listen.Port() == 9000 && len(s.Hosts) == 2 && s.Lease == 30*time.Second
		}},
		{"environment wins", "lease: 30s\n", []string{"ARBITER_LEASE=20s"}, "", func(s *settings) bool { return s.Lease == 20*time.Second }},
		{"any port", "", []string{"ARBITER_LISTEN=127.0.0.1:0"}, "port 0 is any port", nil},
		{"which pair", "", []string{"ARBITER_INSTANCE=2"}, "", func(*settings) bool { return true }},
		{"which pair, in the file", "instance: 2\n", nil, "instance is not a known key", nil},
		{"threads of Envoy", "", nil, "", func(s *settings) bool { return s.EnvoyConcurrency == 0 }},
		{"one thread of Envoy", "envoy_concurrency: 1\n", nil, "", func(s *settings) bool { return s.EnvoyConcurrency == 1 }},
		{"no thread of Envoy", "", []string{"ARBITER_ENVOY_CONCURRENCY=0"}, "not a number from 1 to 1024", nil},
		{"unknown key in the file", "listne: 127.0.0.1:9000\n", nil, "listne is not a known key", nil},
		{"key twice in the file", "lease: 30s\nlease: 20s\n", nil, "lease", nil},
		{"unknown variable", "", []string{"ARBITER_LISTNE=x"}, "ARBITER_LISTNE is not a known key", nil},
		{"other programs' variables", "", []string{"LISTNE=x", "ARBITER_DATA=x"}, "", func(*settings) bool { return true }},
		{"lease too short", "", []string{"ARBITER_LEASE=1s"}, "not between 5s and 1m0s", nil},
		{"base URL with a slash", "", []string{"ARBITER_BASE_URL=https://a.example/"}, "is not an https origin", nil},
		{"base URL without TLS", "", []string{"ARBITER_BASE_URL=http://a.example"}, "is not an https origin", nil},
		{"base URL in upper case", "", []string{"ARBITER_BASE_URL=https://A.example"}, "is not an https origin", nil},
		{"certificate without key", "", []string{"ARBITER_TLS_CERT=a.pem"}, "go together", nil},
		{"network", "", []string{"ARBITER_UPSTREAM_NETWORKS=10.0.0.0/8, 192.168.0.0/16"}, "", func(s *settings) bool { return len(s.UpstreamNetworks) == 2 }},
		{"no network", "", []string{"ARBITER_UPSTREAM_NETWORKS=10.0.0.0"}, "ARBITER_UPSTREAM_NETWORKS", nil},
		{"proxies", "", []string{"ARBITER_TRUSTED_PROXIES=2"}, "", func(s *settings) bool { return s.ProxyHops == 2 && !s.ProxyProtocol }},
		{"PROXY protocol", "", []string{"ARBITER_TRUSTED_PROXIES=proxy_protocol"}, "", func(s *settings) bool { return s.ProxyHops == 0 && s.ProxyProtocol }},
		{"proxies by address", "", []string{"ARBITER_TRUSTED_PROXIES=10.0.0.1"}, "neither proxy_protocol nor", nil},
		{"old TLS", "", []string{"ARBITER_TLS_MIN_VERSION=1.1"}, "neither 1.2 nor 1.3", nil},
		{"no YAML", "a: [", nil, "configuration", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := ""
			if row.file != "" {
				file = filepath.Join(t.TempDir(), "arbiter.yaml")
				if err := os.WriteFile(file, []byte(row.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := readSettings(file, row.env)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Fatalf("error %v, want %q", err, row.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			if err == nil && !row.check(s) {
				t.Errorf("settings %+v", s)
			}
		})
	}
}
