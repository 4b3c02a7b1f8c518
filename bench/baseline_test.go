package main

import (
	"net/netip"
	"slices"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/internal/servercert"
	"github.com/arbiter-gateway/arbiter/xds"
)

// translated is what Arbiter pushes.
func translated(t *testing.T) pushed {
	t.Helper()
	source, err := servercert.New(servercert.Config{Dir: t.TempDir(), Hosts: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := source.Pair()
	if err != nil {
		t.Fatal(err)
	}
	r, err := xds.Translate(
		xds.State{Certificate: pair.Certificate, Key: secret.New(pair.Key.Reveal()), SystemRoots: "roots.pem"},
		xds.Place{Listen: netip.MustParseAddrPort("127.0.0.1:1"), Extauthz: "/run/extauthz.sock"},
	)
	if err != nil {
		t.Fatal(err)
	}
	return pushed{r.Listeners[0], r.Routes[0], r.Clusters}
}

func manager(t *testing.T, l *listenerv3.Listener) *hcmv3.HttpConnectionManager {
	t.Helper()
	hcm := new(hcmv3.HttpConnectionManager)
	if err := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(hcm); err != nil {
		t.Fatal(err)
	}
	return hcm
}

func filterNames(hcm *hcmv3.HttpConnectionManager) (names []string) {
	for _, filter := range hcm.GetHttpFilters() {
		names = append(names, filter.GetName())
	}
	return names
}

// A baseline is Arbiter's configuration less its filters and the addresses;
// everything else of the connection manager is equal.
func TestBaselineDiffersInAuthenticationOnly(t *testing.T) {
	for _, row := range []struct {
		name, socket string
		filters      []string
		clusters     int
	}{
		{"alone", "", []string{"answer-headers", "envoy.filters.http.router"}, 1},
		{"no-op", "/noop.sock", []string{"answer-headers", checkFilter, "envoy.filters.http.router"}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			original := manager(t, translated(t).listener)
			b := baseline{netip.MustParseAddrPort("127.0.0.1:2"), "data", row.socket, netip.MustParseAddrPort("127.0.0.1:3")}
			text, err := b.bootstrap(translated(t))
			if err != nil {
				t.Fatal(err)
			}
			got := new(bootstrapv3.Bootstrap)
			if err := protojson.Unmarshal(text, got); err != nil {
				t.Fatal(err)
			}
			if err := got.ValidateAll(); err != nil {
				t.Error(err)
			}
			resources := got.GetStaticResources()
			hcm := manager(t, resources.GetListeners()[0])
			if names := filterNames(hcm); !slices.Equal(names, row.filters) || len(resources.GetClusters()) != row.clusters {
				t.Errorf("filters %v, %d clusters", names, len(resources.GetClusters()))
			}
			if n := len(hcm.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()); n != 2 {
				t.Errorf("%d routes, want /rpc and /mcp", n)
			}
			hcm.HttpFilters, original.HttpFilters = nil, nil
			hcm.RouteSpecifier, original.RouteSpecifier = nil, nil
			if !proto.Equal(hcm, original) {
				t.Errorf("the connection manager differs:\n%v\n%v", hcm, original)
			}
		})
	}
}

func TestToolCallHasItsSize(t *testing.T) {
	if n := len(toolCall(callSize)); n != 1024 {
		t.Errorf("%d bytes", n)
	}
}
