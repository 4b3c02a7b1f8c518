package xds_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/arbiter-gateway/arbiter/envoy"
	"github.com/arbiter-gateway/arbiter/xds"
)

// TestEnvoyAcceptsEveryGolden gives each configuration of the golden test, as a
// static one, to `envoy --mode validate`.
func TestEnvoyAcceptsEveryGolden(t *testing.T) {
	binary := findEnvoy(t)
	authority := newAuthority(t)
	certificate, key := authority.issue(t, "localhost")
	inputs, err := filepath.Glob("testdata/in/*.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no input: %v", err)
	}
	for _, input := range inputs {
		t.Run(strings.TrimSuffix(filepath.Base(input), ".yaml"), func(t *testing.T) {
			roots := filepath.Join(t.TempDir(), "roots.pem")
			if err := os.WriteFile(roots, []byte(authority.pem), 0o600); err != nil {
				t.Fatal(err)
			}
			resources, err := readState(t, input).translate(t, certificate, key, roots)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "envoy.json")
			config, err := protojson.Marshal(static(t, resources))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, config, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(binary, "--mode", "validate", "--config-path", file, "--log-level", "warning").CombinedOutput()
			if err != nil || strings.Contains(string(out), "[warning]") {
				t.Errorf("envoy: %v\n%s", err, out)
			}
		})
	}
}

func findEnvoy(t *testing.T) string {
	t.Helper()
	path, version, err := envoy.Find()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("envoy %s", version)
	return path
}

// static puts in place what Envoy would fetch: routes and certificate.
func static(t *testing.T, r xds.Resources) *bootstrapv3.Bootstrap {
	t.Helper()
	var listeners []*listenerv3.Listener
	for _, l := range r.Listeners {
		l = proto.CloneOf(l)
		chain := l.GetFilterChains()[0]
		manager := new(hcmv3.HttpConnectionManager)
		unpack(t, chain.GetFilters()[0].GetTypedConfig(), manager)
		manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: r.Routes[0]}
		repack(t, chain.GetFilters()[0].GetTypedConfig(), manager)
		context := new(tlsv3.DownstreamTlsContext)
		unpack(t, chain.GetTransportSocket().GetTypedConfig(), context)
		context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()[0].SdsConfig = nil
		repack(t, chain.GetTransportSocket().GetTypedConfig(), context)
		listeners = append(listeners, l)
	}
	return &bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{
		Listeners: listeners, Clusters: r.Clusters, Secrets: r.Secrets,
	}}
}

func unpack(t *testing.T, packed *anypb.Any, into proto.Message) {
	t.Helper()
	if err := packed.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
}

func repack(t *testing.T, packed *anypb.Any, from proto.Message) {
	t.Helper()
	if err := packed.MarshalFrom(from); err != nil {
		t.Fatal(err)
	}
}
