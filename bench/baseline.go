package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/arbiter-gateway/arbiter/xds" // knows every message that its configuration holds
)

// Names in the configuration that Arbiter pushes (package xds).
const (
	checkFilter   = "envoy.filters.http.ext_authz"
	checkCluster  = "extauthz-check"
	plainUpstream = "plain"
	certificate   = "server-certificate"
)

// authentication are the filters that a baseline goes without. Without Check's
// marks the other two have nothing to go by.
var authentication = map[string]bool{checkFilter: true, "guard-gate": true, "drop-session-id": true}

// pushed is what Arbiter's own Envoy runs at this moment: what control pushed
// to it, as Envoy itself says it.
type pushed struct {
	listener *listenerv3.Listener
	routes   *routev3.RouteConfiguration
	clusters []*clusterv3.Cluster
}

// dump asks the Envoy of an arbiter for the configuration that was pushed to it.
func dump(ctx context.Context, g *arbiter) (pushed, error) {
	var p pushed
	for _, kind := range []string{"dynamic_listeners", "dynamic_route_configs", "dynamic_active_clusters"} {
		text, err := fetch(ctx, filepath.Join(g.dir, "run", "envoy-admin.sock"), "/config_dump?resource="+kind)
		if err != nil {
			return p, err
		}
		if err := p.read(text); err != nil {
			return p, fmt.Errorf("reading Envoy's configuration: %w", err)
		}
	}
	if p.listener == nil || p.routes == nil || named(p.clusters, plainUpstream) == nil || named(p.clusters, checkCluster) == nil {
		return p, errors.New("its Envoy has no listener, routes or clusters from Arbiter")
	}
	return p, nil
}

// read keeps the resources of one dump.
func (p *pushed) read(text []byte) error {
	all := new(adminv3.ConfigDump)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, all); err != nil {
		return err
	}
	for _, part := range all.GetConfigs() {
		m, err := part.UnmarshalNew()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *adminv3.ListenersConfigDump_DynamicListener:
			p.listener = new(listenerv3.Listener)
			err = m.GetActiveState().GetListener().UnmarshalTo(p.listener)
		case *adminv3.RoutesConfigDump_DynamicRouteConfig:
			p.routes = new(routev3.RouteConfiguration)
			err = m.GetRouteConfig().UnmarshalTo(p.routes)
		case *adminv3.ClustersConfigDump_DynamicCluster:
			cluster := new(clusterv3.Cluster)
			err = m.GetCluster().UnmarshalTo(cluster)
			p.clusters = append(p.clusters, cluster)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// baseline is an Envoy without Arbiter: what Arbiter pushes to its own, less
// what authenticates.
type baseline struct {
	listen   netip.AddrPort
	dataDir  string // of an arbiter: its server certificate is used
	socket   string // of the no-op ext_authz; "": none is asked
	upstream netip.AddrPort
}

// bootstrap makes the whole configuration, as JSON, with nothing dynamic in it.
// It changes p.
func (b baseline) bootstrap(p pushed) ([]byte, error) {
	if err := b.cutListener(p); err != nil {
		return nil, err
	}
	clusters := []*clusterv3.Cluster{b.upstreamCluster(p.clusters)}
	if b.socket != "" {
		check := named(p.clusters, checkCluster)
		check.LoadAssignment = endpoint(checkCluster, pipe(b.socket))
		clusters = append(clusters, check)
	}
	return protojson.Marshal(&bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: "baseline", Cluster: "bench"},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: []*listenerv3.Listener{p.listener}, Clusters: clusters, Secrets: []*tlsv3.Secret{b.secret()},
		},
	})
}

// cutListener takes the filters out, and puts what would come over xDS in.
func (b baseline) cutListener(p pushed) error {
	p.listener.Address = socketAddress(b.listen)
	chain := p.listener.GetFilterChains()[0]
	if err := change(chain.GetTransportSocket().GetTypedConfig(), func(tls *tlsv3.DownstreamTlsContext) {
		for _, secret := range tls.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
			secret.SdsConfig = nil // the static one of this name
		}
	}); err != nil {
		return err
	}
	return change(chain.GetFilters()[0].GetTypedConfig(), func(hcm *hcmv3.HttpConnectionManager) {
		hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: b.routes(p.routes)}
		kept := hcm.GetHttpFilters()[:0]
		for _, filter := range hcm.GetHttpFilters() {
			asked := b.socket != "" && filter.GetName() == checkFilter
			if !authentication[filter.GetName()] || asked {
				kept = append(kept, filter)
			}
		}
		hcm.HttpFilters = kept
	})
}

// routes opens the routes that Check's metadata would open, to one upstream.
func (b baseline) routes(table *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	for _, host := range table.GetVirtualHosts() {
		var open []*routev3.Route
		for _, route := range host.GetRoutes() {
			if action := route.GetRoute(); action != nil {
				route.GetMatch().DynamicMetadata = nil
				action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: plainUpstream}
				action.PathRewrite = jsonPath
				action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: b.upstream.String()}
				open = append(open, route)
			}
		}
		host.Routes = open
	}
	return table
}

// upstreamCluster is that of a plain upstream, with its address in it.
func (b baseline) upstreamCluster(all []*clusterv3.Cluster) *clusterv3.Cluster {
	c := named(all, plainUpstream)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	c.LbPolicy, c.LbConfig = clusterv3.Cluster_ROUND_ROBIN, nil
	c.LoadAssignment = endpoint(plainUpstream, socketAddress(b.upstream))
	return c
}

// secret is the arbiter's server certificate, which Envoy reads from its files.
func (b baseline) secret() *tlsv3.Secret {
	file := func(name string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: filepath.Join(b.dataDir, "tls", name)}}
	}
	return &tlsv3.Secret{Name: certificate, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: file("server.pem"), PrivateKey: file("server.key"),
	}}}
}

func endpoint(cluster string, at *corev3.Address) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}},
		}}}},
	}
}

func socketAddress(at netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: at.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())},
	}}}
}

func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

func named(all []*clusterv3.Cluster, name string) *clusterv3.Cluster {
	for _, c := range all {
		if c.GetName() == name {
			return c
		}
	}
	return nil
}

// change unpacks a typed_config, changes it and packs it again.
func change[T any, M interface {
	*T
	proto.Message
}](packed *anypb.Any, edit func(M)) error {
	m := M(new(T))
	if err := packed.UnmarshalTo(m); err != nil {
		return err
	}
	edit(m)
	return packed.MarshalFrom(m)
}
