package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// settings is what an operator can set: in a YAML file (--config), or each key
// in the environment as ARBITER_KEY, which wins. An unknown key stops the start.
type settings struct {
	Listen               netip.AddrPort
	BaseURL              string
	Hosts                []string
	UpstreamNetworks     []netip.Prefix
	TLSCert, TLSKey      string
	TLS12                bool
	AdminListen          string
	ProxyProtocol        bool
	ProxyHops            uint32
	Lease                time.Duration
	Session              time.Duration
	StreamsPerCredential int
	StreamMost           time.Duration
	RecordsRequired      bool
	Policy               policySettings
	EnvoyConcurrency     int // 0: one thread per CPU
	Profile              bool
	LogLevel             slog.Level
}

// setting is one key and how its text is read.
type setting struct {
	key  string
	help string
	set  func(text string) error
}

// notSettings are the variables of this name that are read elsewhere.
var notSettings = []string{"ARBITER_DATA", "ARBITER_CONFIG", "ARBITER_ENVOY", "ARBITER_INSTANCE", "ARBITER_URL"}

func (s *settings) table() []setting {
	return append([]setting{
		{"listen", "ip:port that Envoy listens on", func(t string) error { return s.setListen(t) }},
		{"base_url", "public origin; follows listen unless set", func(t string) error { s.BaseURL = t; return checkBaseURL(t) }},
		{"hosts", "further Host values that are accepted", func(t string) error { s.Hosts = list(t); return nil }},
		{"upstream_networks", "CIDR ranges where upstreams may be", func(t string) error { return s.setNetworks(t) }},
		{"tls_cert", "server certificate, PEM", func(t string) error { s.TLSCert = t; return nil }},
		{"tls_key", "its key, PEM", func(t string) error { s.TLSKey = t; return nil }},
		{"tls_min_version", "1.3 or 1.2", func(t string) error { return s.setTLS(t) }},
		{"trusted_proxies", "proxy_protocol, or how many proxies append to X-Forwarded-For", func(t string) error { return s.setProxies(t) }},
		{"admin_listen", "ip:port for /livez, /readyz and /metrics", func(t string) error { s.AdminListen = t; return nil }},
		{"lease", "how long a replica decides without hearing control", duration(&s.Lease, revocation.LeaseLeast, revocation.LeaseMost)},
		{"session_lifetime", "how long an MCP session can be used", duration(&s.Session, time.Minute, 366*24*time.Hour)},
		{"streams_per_credential", "live streams of one credential", func(t string) error { return s.setStreams(t) }},
		{"max_stream_duration", "backstop of a live stream", duration(&s.StreamMost, time.Minute, 30*24*time.Hour)},
		{"decision_log_required", "refuse when the decision log is full", func(t string) (err error) {
			s.RecordsRequired, err = strconv.ParseBool(t)
			return err
		}},
		{"envoy_concurrency", "worker threads of Envoy", func(t string) error { return s.setConcurrency(t) }},
		{"profile", "Go's profiler on the admin socket of a separate extauthz", func(t string) (err error) {
			s.Profile, err = strconv.ParseBool(t)
			return err
		}},
		{"log_level", "debug, info, warn or error", func(t string) error { return s.LogLevel.UnmarshalText([]byte(t)) }},
	}, s.Policy.table()...)
}

// settingsHelp lists every key, for the help of the commands that take them.
func settingsHelp() string {
	var out strings.Builder
	out.WriteString("Keys of the configuration file; each also in the environment as ARBITER_KEY in upper case:\n\n")
	for _, known := range new(settings).table() {
		fmt.Fprintf(&out, "  %-24s %s\n", known.key, known.help)
	}
	return out.String()
}

// readSettings reads the file, then the environment, then fills in defaults.
func readSettings(file string, environ []string) (*settings, error) {
	s := &settings{
		Listen: netip.MustParseAddrPort("127.0.0.1:8443"), Lease: 15 * time.Second, Session: 30 * 24 * time.Hour,
		StreamsPerCredential: 256, StreamMost: 24 * time.Hour,
	}
	table := s.table()
	if file != "" {
		if err := readFile(file, table); err != nil {
			return nil, err
		}
	}
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		key, ours := strings.CutPrefix(name, "ARBITER_")
		if !ours || slices.Contains(notSettings, name) {
			continue
		}
		if err := set(table, strings.ToLower(key), name, text); err != nil {
			return nil, err
		}
	}
	if s.BaseURL == "" {
		s.BaseURL = "https://" + publicHost(s.Listen)
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return nil, errors.New("configuration: tls_cert and tls_key go together: set both or neither")
	}
	return s, s.Policy.check()
}

func readFile(file string, table []setting) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("configuration %s: %s", file, strings.SplitN(err.Error(), "\n", 2)[0])
	}
	for key, value := range values {
		var parts []string
		switch value := value.(type) {
		case []any:
			for _, part := range value {
				parts = append(parts, fmt.Sprint(part))
			}
		default:
			parts = []string{fmt.Sprint(value)}
		}
		if err := set(table, key, file+": "+key, strings.Join(parts, ",")); err != nil {
			return err
		}
	}
	return nil
}

func set(table []setting, key, shown, text string) error {
	at := slices.IndexFunc(table, func(s setting) bool { return s.key == key })
	if at < 0 {
		return fmt.Errorf("configuration: %s is not a known key: see `arbiter up --help`", shown)
	}
	if err := table[at].set(text); err != nil {
		return fmt.Errorf("configuration: %s (%s): %w", shown, table[at].help, err)
	}
	return nil
}

func list(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func duration(into *time.Duration, least, most time.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		if d < least || d > most {
			return fmt.Errorf("%v is not between %v and %v", d, least, most)
		}
		*into = d
		return nil
	}
}

// setListen wants a port that can be told to clients, and to extauthz as ours.
func (s *settings) setListen(text string) (err error) {
	if s.Listen, err = netip.ParseAddrPort(text); err == nil && s.Listen.Port() == 0 {
		return errors.New("port 0 is any port: name one")
	}
	return err
}

func (s *settings) setConcurrency(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1024 {
		return fmt.Errorf("%q is not a number from 1 to 1024", text)
	}
	s.EnvoyConcurrency = n
	return nil
}

func (s *settings) setNetworks(text string) error {
	s.UpstreamNetworks = nil
	for _, part := range list(text) {
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			return err
		}
		s.UpstreamNetworks = append(s.UpstreamNetworks, prefix)
	}
	return nil
}

func (s *settings) setTLS(text string) error {
	switch text {
	case "1.2":
		s.TLS12 = true
	case "1.3":
		s.TLS12 = false
	default:
		return fmt.Errorf("%q is neither 1.2 nor 1.3", text)
	}
	return nil
}

func (s *settings) setProxies(text string) error {
	if text == "proxy_protocol" {
		s.ProxyProtocol = true
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > 16 {
		return fmt.Errorf("%q is neither proxy_protocol nor a number from 0 to 16", text)
	}
	s.ProxyHops = uint32(n)
	return nil
}

func (s *settings) setStreams(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 100_000 {
		return fmt.Errorf("%q is not a number from 1 to 100000", text)
	}
	s.StreamsPerCredential = n
	return nil
}

// checkBaseURL holds the issuer's form: an https origin, nothing behind it.
func checkBaseURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ToLower(text) != text {
		return fmt.Errorf("%q is not an https origin in lower case, like https://mcp.example.com, without a path or trailing slash", text)
	}
	return nil
}

// publicHost is how a client on this machine reaches a listener.
func publicHost(listen netip.AddrPort) string {
	host := "localhost"
	if addr := listen.Addr(); !addr.IsLoopback() && !addr.IsUnspecified() {
		host = addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
	}
	if listen.Port() == 443 {
		return host
	}
	return host + ":" + strconv.Itoa(int(listen.Port()))
}
