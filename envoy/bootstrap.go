package envoy

import (
	"errors"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// Config is what the bootstrap holds.
type Config struct {
	Node           string           // id of this Envoy at the xDS server
	Metadata       *structpb.Struct // what it tells the xDS server about itself: its place
	XDSSocket      string           // unix socket of control's gRPC
	AdminSocket    string           // unix socket on which Envoy serves its admin interface
	MaxConnections int64            // of clients; default 20,000
}

const (
	xdsCluster            = "xds"
	defaultMaxConnections = 20_000
)

// Bootstrap is the file that Envoy is started with, as JSON: who it is and where it stands, where
// the xDS server is, its admin interface on a unix socket, the limit of client
// connections, and nothing else.
func Bootstrap(c Config) ([]byte, error) {
	if c.Node == "" || len(c.Metadata.GetFields()) == 0 || c.XDSSocket == "" || c.AdminSocket == "" {
		return nil, errors.New("bootstrap of envoy: node, metadata, xds socket and admin socket are needed")
	}
	if c.MaxConnections <= 0 {
		c.MaxConnections = defaultMaxConnections
	}
	limit, err := anypb.New(&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: c.MaxConnections})
	if err != nil {
		return nil, err
	}
	cluster, err := controlCluster(c.XDSSocket)
	if err != nil {
		return nil, err
	}
	return marshal(&bootstrapv3.Bootstrap{
		Node:             &corev3.Node{Id: c.Node, Cluster: "envoy", Metadata: c.Metadata},
		Admin:            &bootstrapv3.Admin{Address: unixSocket(c.AdminSocket, 0o600)},
		DynamicResources: dynamicResources(),
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{cluster}},
		OverloadManager: &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
			Name:       "envoy.resource_monitors.global_downstream_max_connections",
			ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: limit},
		}}},
	})
}

// dynamicResources asks for everything on one delta stream, and asks again soon
// after the server was away: the default takes seconds.
func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	ads := &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
	return &bootstrapv3.Bootstrap_DynamicResources{
		LdsConfig: ads,
		CdsConfig: ads,
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{
				TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
					ClusterName: xdsCluster,
					RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
						BaseInterval: durationpb.New(100 * time.Millisecond),
						MaxInterval:  durationpb.New(time.Second),
					}},
				}},
			}},
		},
	}
}

func controlCluster(socket string) (*clusterv3.Cluster, error) {
	protocol, err := anypb.New(&upstreamv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
						ConnectionKeepalive: &corev3.KeepaliveSettings{
							Interval: durationpb.New(10 * time.Second),
							Timeout:  durationpb.New(5 * time.Second),
						},
					},
				},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return &clusterv3.Cluster{
		Name:                 xdsCluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: xdsCluster,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: unixSocket(socket, 0),
				}},
			}}}},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol,
		},
	}, nil
}

func unixSocket(path string, mode uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: mode}}}
}

func marshal(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Marshal(m)
}
