package xds_test

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/xds"
)

var update = flag.Bool("update", false, "rewrite testdata/out")

// state is how testdata/in spells a State and a Place. Certificate and key are those of the
// test; they do not appear in testdata/out.
type state struct {
	Listen         string   `yaml:"listen"`
	TLS12          bool     `yaml:"tls12"`
	CAs            []string `yaml:"cas"`
	ExtauthzSocket string   `yaml:"extauthz_socket"`
	ProxyProtocol  bool     `yaml:"proxy_protocol"`
	ProxyHops      uint32   `yaml:"proxy_hops"`
	Times          struct {
		Check             time.Duration `yaml:"check"`
		KeepaliveInterval time.Duration `yaml:"keepalive_interval"`
		KeepaliveTimeout  time.Duration `yaml:"keepalive_timeout"`
		StreamMax         time.Duration `yaml:"stream_max"`
	} `yaml:"times"`
}

func (s state) translate(t *testing.T, certificate, key, roots string) (xds.Resources, error) {
	t.Helper()
	out := xds.State{
		TLS12: s.TLS12, Certificate: certificate, Key: secret.New(key), SystemRoots: roots,
		ProxyProtocol: s.ProxyProtocol, ProxyHops: s.ProxyHops,
		Times: xds.Times{
			Check: s.Times.Check, StreamMax: s.Times.StreamMax,
			KeepaliveInterval: s.Times.KeepaliveInterval, KeepaliveTimeout: s.Times.KeepaliveTimeout,
		},
	}
	for _, name := range s.CAs {
		out.CAs = append(out.CAs, string(readFile(t, "testdata/ca-"+name+".pem")))
	}
	return xds.Translate(out, xds.Place{Listen: netip.MustParseAddrPort(s.Listen), Extauthz: s.ExtauthzSocket})
}

// TestGolden translates each file of testdata/in and compares the whole
// configuration, as YAML that reads like Envoy's, with testdata/out.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/in/*.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no input: %v", err)
	}
	known := map[string]bool{}
	for _, input := range inputs {
		name := filepath.Base(input)
		known[name] = true
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			certificate, key := newAuthority(t).issue(t, "localhost")
			resources, err := readState(t, input).translate(t, certificate, key, "/etc/ssl/certs/ca-certificates.crt")
			if err != nil {
				t.Fatal(err)
			}
			pair := resources.Secrets[0].GetTlsCertificate()
			if pair.GetCertificateChain().GetInlineString() != certificate || pair.GetPrivateKey().GetInlineString() != key {
				t.Error("the secret is not the certificate and key of the state")
			}
			pair.GetCertificateChain().Specifier = &corev3.DataSource_InlineString{InlineString: "(certificate)"}
			pair.GetPrivateKey().Specifier = &corev3.DataSource_InlineString{InlineString: "(key)"}
			compare(t, filepath.Join("testdata/out", name), render(t, resources))
		})
	}
	dropStale(t, known)
}

func dropStale(t *testing.T, known map[string]bool) {
	t.Helper()
	outputs, err := filepath.Glob("testdata/out/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range outputs {
		if known[filepath.Base(output)] {
			continue
		}
		if !*update {
			t.Errorf("%s has no input: run with -update", output)
		} else if err := os.Remove(output); err != nil {
			t.Fatal(err)
		}
	}
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run with -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs: run with -update and read the difference as an attacker would\n%s", path, got)
	}
}

// render writes resources as one YAML document, in the order of their types.
func render(t *testing.T, r xds.Resources) []byte {
	t.Helper()
	var out bytes.Buffer
	section(t, &out, "listeners", r.Listeners)
	section(t, &out, "routes", r.Routes)
	section(t, &out, "clusters", r.Clusters)
	section(t, &out, "secrets", r.Secrets)
	return out.Bytes()
}

func section[M proto.Message](t *testing.T, out *bytes.Buffer, title string, all []M) {
	t.Helper()
	out.WriteString(title + ":\n")
	for _, m := range all {
		asJSON, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimRight(string(asYAML), "\n"), "\n") {
			prefix := "  "
			if i == 0 {
				prefix = "- "
			}
			out.WriteString(strings.TrimRight(prefix+line, " ") + "\n")
		}
	}
}

func readState(t *testing.T, path string) state {
	t.Helper()
	var s state
	if err := yaml.UnmarshalWithOptions(readFile(t, path), &s, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return s
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
