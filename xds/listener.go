package xds

import (
	"net/netip"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// bufferLimit is how much Envoy holds per connection and direction. Above
// MaxOpenerAnswer by one read, so that Guard can be given a whole answer of
// that size (measured: the limit counts what is buffered, not what is judged).
const bufferLimit = MaxOpenerAnswer + 64<<10

// Linux' names of the socket option that ends a connection whose peer does not
// acknowledge data.
const (
	levelTCP       = 6
	tcpUserTimeout = 18
)

// listener is the one port that faces the world.
func listener(s State, at Place) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:                          listenerName,
		Address:                       tcpAddress(at.Listen),
		PerConnectionBufferLimitBytes: number(bufferLimit),
		SocketOptions: []*corev3.SocketOption{{
			Description: "TCP_USER_TIMEOUT in ms: cuts stalled connections, leaves quiet streams alone",
			Level:       levelTCP,
			Name:        tcpUserTimeout,
			Value:       &corev3.SocketOption_IntValue{IntValue: s.Times.UnacknowledgedData.Milliseconds()},
			State:       corev3.SocketOption_STATE_LISTENING,
		}},
		TcpKeepalive:    tcpKeepalive(),
		ListenerFilters: listenerFilters(s),
		FilterChains: []*listenerv3.FilterChain{{
			TransportSocketConnectTimeout: duration(10 * time.Second),
			TransportSocket: &corev3.TransportSocket{
				Name:       "envoy.transport_sockets.tls",
				ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(downstreamTLS(s))},
			},
			Filters: []*listenerv3.Filter{{
				Name:       "envoy.filters.network.http_connection_manager",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(connectionManager(s))},
			}},
		}},
	}
}

// listenerFilters read what stands before the first byte of TLS. With the PROXY
// protocol a connection without its header is refused.
func listenerFilters(s State) []*listenerv3.ListenerFilter {
	if !s.ProxyProtocol {
		return nil
	}
	return []*listenerv3.ListenerFilter{{
		Name: "envoy.filters.listener.proxy_protocol",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{
			TypedConfig: pack(&proxyprotocolv3.ProxyProtocol{}),
		},
	}}
}

func tcpAddress(at netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       at.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())},
	}}}
}

// tcpKeepalive finds peers that are gone while nothing is sent.
func tcpKeepalive() *corev3.TcpKeepalive {
	return &corev3.TcpKeepalive{
		KeepaliveTime:     number(60),
		KeepaliveInterval: number(10),
		KeepaliveProbes:   number(3),
	}
}

// downstreamTLS asks for no client certificate in this release. Sessions are
// not resumed: a resumed one would outlive the certificate that opened it.
func downstreamTLS(s State) *tlsv3.DownstreamTlsContext {
	params := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
	}
	if s.TLS12 {
		params.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_2
		params.CipherSuites = []string{ // of TLS 1.2: forward secrecy and AEAD only
			"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
			"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
			"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
		}
	}
	return &tlsv3.DownstreamTlsContext{
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsParams:     params,
			AlpnProtocols: []string{"h2", "http/1.1"},
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{
				Name:      serverCertName,
				SdsConfig: fromADS(),
			}},
		},
		RequireClientCertificate: no(),
		SessionTicketKeysType: &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{
			DisableStatelessSessionResumption: true,
		},
		DisableStatefulSessionResumption: true,
	}
}
