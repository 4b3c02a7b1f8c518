package xds

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mutationfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/proto"
)

// connectionManager reads requests strictly, gives each its id, and runs the
// filters. Its order on a request is the order of filters below; on an answer
// it is the reverse.
func connectionManager(s State) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix: listenerName,
		CodecType:  hcmv3.HttpConnectionManager_AUTO,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: routesName, ConfigSource: fromADS(),
		}},
		HttpFilters: filters(s),

		// What a request may look like.
		NormalizePath:                yes(),
		MergeSlashes:                 true,
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_REJECT_REQUEST,
		MaxRequestHeadersKb:          number(60),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_REJECT_REQUEST,
			MaxHeadersCount:              number(100),
			IdleTimeout:                  duration(s.Times.ClientIdle),
			MaxStreamDuration:            duration(s.Times.StreamMax),
		},
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams:        number(1024),
			InitialStreamWindowSize:     number(bufferLimit),
			InitialConnectionWindowSize: number(1 << 20),
		},

		// Who is asking.
		UseRemoteAddress:              yes(),
		XffNumTrustedHops:             s.ProxyHops,
		InternalAddressConfig:         nobodyInternal(),
		ForwardClientCertDetails:      hcmv3.HttpConnectionManager_SANITIZE,
		EarlyHeaderMutationExtensions: earlyHeaderMutation(s),
		GenerateRequestId:             yes(),
		RequestIdExtension: &hcmv3.RequestIDExtension{TypedConfig: pack(&uuidv3.UuidRequestIdConfig{
			PackTraceReason: no(), UseRequestIdForTraceSampling: no(),
		})},

		// How long things may take. A stream has no idle limit (SSE).
		StreamIdleTimeout:     duration(0),
		RequestHeadersTimeout: duration(s.Times.RequestHeaders),
		RequestTimeout:        duration(s.Times.Request),
		StreamFlushTimeout:    duration(s.Times.StreamFlush),
		DelayedCloseTimeout:   duration(20 * time.Millisecond), // the default 1 s delays a cut by 1 s

		// What answers say about us.
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_OVERWRITE,
		ServerName:                 "arbiter",
		LocalReplyConfig:           localReplies(),
	}
}

// nobodyInternal takes from loopback and private addresses the trust that Envoy
// gives them by default, and to which it falls back for an empty list.
func nobodyInternal() *hcmv3.HttpConnectionManager_InternalAddressConfig {
	return &hcmv3.HttpConnectionManager_InternalAddressConfig{CidrRanges: []*corev3.CidrRange{
		{AddressPrefix: "255.255.255.255", PrefixLen: number(32)},
	}}
}

// filters is the whole chain.
func filters(s State) []*hcmv3.HttpFilter {
	return []*hcmv3.HttpFilter{
		filter("answer-headers", &mutationfilterv3.HeaderMutation{Mutations: &mutationfilterv3.Mutations{
			ResponseMutations:        setAnswerHeaders(),
			RequestTrailersMutations: trailers(),
		}}),
		filter(checkFilter, check(s)),
		filter("guard-gate", guardGate(s)),
		filter("drop-session-id", dropSessionID()),
		filter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true}),
	}
}

func filter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}
