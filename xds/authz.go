package xds

import (
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// checkFilter is the filter's name, and the namespace of Check's dynamic metadata.
const checkFilter = "envoy.filters.http.ext_authz"

// clusterHeader is set by Check: the upstream TLS profile of this request.
const clusterHeader = "x-arbiter-cluster"

// check asks extauthz about every request that has a route. It fails closed:
// no answer, a slow one and garbage are 503.
func check(s State) *authzv3.ExtAuthz {
	return &authzv3.ExtAuthz{
		TransportApiVersion: corev3.ApiVersion_V3,
		Services:            &authzv3.ExtAuthz_GrpcService{GrpcService: extauthz(checkCluster, s.Times.Check)},
		StatPrefix:          "check",
		FailureModeAllow:    false,
		StatusOnError:       &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		WithRequestBody: &authzv3.BufferSettings{
			MaxRequestBytes:     MaxBody + 1,
			AllowPartialMessage: false,
			PackAsBytes:         true,
		},
		EncodeRawHeaders:       true,
		ValidateMutations:      true,
		ClearRouteCache:        true,
		ClearRouteCacheHeaders: []string{clusterHeader},
		DecoderHeaderMutationRules: &mutationv3.HeaderMutationRules{
			AllowEnvoy:      yes(), // the call's limits; by default dropped without a word
			DisallowSystem:  yes(), // path and host come from metadata only
			DisallowIsError: yes(),
		},
	}
}

// extauthz is the gRPC service of Check and Guard. What it says about the
// connection travels as gRPC metadata, out of the client's reach.
func extauthz(cluster string, timeout time.Duration) *corev3.GrpcService {
	service := &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
			ClusterName: cluster, Authority: "extauthz", SkipEnvoyHeaders: true,
		}},
		InitialMetadata: []*corev3.HeaderValue{
			{Key: "x-arbiter-peer-address", Value: "%DOWNSTREAM_REMOTE_ADDRESS%"},
			{Key: "x-arbiter-connection", Value: "%CONNECTION_ID%"},
			{Key: "x-arbiter-stream", Value: "%STREAM_ID%"},
		},
	}
	if timeout > 0 {
		service.Timeout = duration(timeout)
	}
	return service
}
