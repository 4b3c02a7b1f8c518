package xds

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	mutationfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/types/known/anypb"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
)

const protocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// clusters are extauthz, twice so that a wave of live streams at Guard cannot
// hold up Check, and one per upstream TLS profile.
func clusters(s State, at Place) []*clusterv3.Cluster {
	all := []*clusterv3.Cluster{
		extauthzCluster(s.Times, at, checkCluster),
		extauthzCluster(s.Times, at, guardCluster),
	}
	for _, p := range s.profiles() {
		all = append(all, upstreamCluster(s, p))
	}
	return all
}

// extauthzCluster is the unix socket of extauthz. Pings find a frozen process,
// which would keep its streams alive and uncuttable.
func extauthzCluster(times Times, at Place, name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       duration(time.Second),
		CircuitBreakers:      unlimited(),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: unixSocket(at.Extauthz),
				}},
			}}}},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{protocolOptions: pack(&upstreamv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
							MaxConcurrentStreams:        number(1 << 30),
							InitialStreamWindowSize:     number(64 << 10),
							InitialConnectionWindowSize: number(1 << 20),
							ConnectionKeepalive: &corev3.KeepaliveSettings{
								Interval: duration(times.KeepaliveInterval),
								Timeout:  duration(times.KeepaliveTimeout),
							},
						},
					},
				},
			},
		})},
	}
}

func unixSocket(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

// upstreamCluster reaches every server of one TLS profile: the address comes
// from Check's metadata, so a new server changes nothing here.
func upstreamCluster(s State, p profile) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                          p.name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:                      clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:                duration(s.Times.ConnectUpstream),
		PerConnectionBufferLimitBytes: number(bufferLimit),
		CircuitBreakers:               unlimited(),
		UpstreamConnectionOptions:     &clusterv3.UpstreamConnectionOptions{TcpKeepalive: tcpKeepalive()},
		LbConfig: &clusterv3.Cluster_OriginalDstLbConfig_{OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
			MetadataKey: &metadatav3.MetadataKey{
				Key: checkFilter,
				Path: []*metadatav3.MetadataKey_PathSegment{{
					Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: dstKey},
				}},
			},
		}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{protocolOptions: pack(upstreamProtocol(s, p))},
	}
	if p.tls {
		c.TransportSocket = &corev3.TransportSocket{
			Name:       "envoy.transport_sockets.tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(upstreamTLS(s, p))},
		}
	}
	return c
}

// upstreamProtocol speaks HTTP/1.1, or with TLS what the server prefers. An
// unused connection is closed before servers do it (commonly after 5 s), which
// would end a request that is just being sent.
func upstreamProtocol(s State, p profile) *upstreamv3.HttpProtocolOptions {
	options := &upstreamv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:          duration(s.Times.UpstreamIdle),
			MaxHeadersCount:      number(100),
			MaxResponseHeadersKb: number(60),
		},
		UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
				},
			},
		},
		HttpFilters: upstreamFilters(),
	}
	if p.tls {
		options.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: true, AutoSanValidation: true}
		options.UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_AutoConfig{
			AutoConfig: &upstreamv3.HttpProtocolOptions_AutoHttpConfig{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
					InitialStreamWindowSize:     number(bufferLimit),
					InitialConnectionWindowSize: number(1 << 20),
					ConnectionKeepalive: &corev3.KeepaliveSettings{
						Interval: duration(30 * time.Second), Timeout: duration(10 * time.Second),
					},
				},
			},
		}
	}
	return options
}

// upstreamFilters see only what really goes to, or comes from, an upstream: no
// denial and no local reply. That is why headers are taken off answers here,
// where the gateway's own ones of the same names are not there yet.
func upstreamFilters() []*hcmv3.HttpFilter {
	return []*hcmv3.HttpFilter{
		filter("strip-upstream", &mutationfilterv3.HeaderMutation{Mutations: &mutationfilterv3.Mutations{
			RequestMutations:          []*mutationv3.HeaderMutation{removePrefix("x-envoy-"), remove(clusterHeader)},
			RequestTrailersMutations:  trailers(),
			ResponseMutations:         untrustedAnswerHeaders(),
			ResponseTrailersMutations: trailers(),
		}}),
		filter("envoy.filters.http.upstream_codec", &codecv3.UpstreamCodec{}),
	}
}

// upstreamTLS verifies the name that Check gave as host. Sessions are never
// resumed: all servers of a profile share this context, a resumed session sends
// no certificate, and one server's session must not vouch for another, whatever
// Envoy keeps with it.
func upstreamTLS(s State, p profile) *tlsv3.UpstreamTlsContext {
	roots := &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: s.SystemRoots}}
	if p.ca != "" {
		roots = inline(p.ca)
	}
	return &tlsv3.UpstreamTlsContext{
		MaxSessionKeys: number(0),
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsParams: &tlsv3.TlsParameters{
				TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
				TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
			},
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
				ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: roots},
			},
		},
	}
}

// unlimited lifts the circuit breakers, whose default is 1,024 of everything.
// What limits streams is the listener's connections and Guard's cap.
func unlimited() *clusterv3.CircuitBreakers {
	const most = 1 << 30
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: number(most), MaxPendingRequests: number(most),
		MaxRequests: number(most), MaxRetries: number(most),
	}}}
}
