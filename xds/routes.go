package xds

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Check's dynamic metadata for a request it lets through, always all of them.
const (
	dstKey  = "dst"  // "ip:port" or "[v6]:port"
	hostKey = "host" // Host, SNI and the name the certificate must have
	pathKey = "path" // path and query at the upstream

	// Optional ones, for answers that do not come from the upstream too.
	idKey     = "id"     // the JSON-RPC id as JSON text
	originKey = "origin" // access-control-allow-origin
	exposeKey = "expose" // access-control-expose-headers
)

// The real paths of this release. What does not match one of them completely is
// 404, and Check is never asked. Names of routes tell local replies which body
// to give.
const (
	rpcRoute = "rpc"
	mcpRoute = "mcp"

	uuidPattern = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
)

// routes is the whole route table, for any Host: Check answers a foreign one 421.
func routes() *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: routesName,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "any",
			Domains: []string{"*"},
			Routes: []*routev3.Route{
				openRoute(rpcRoute), closedRoute(rpcRoute),
				openRoute(mcpRoute), closedRoute(mcpRoute),
			},
		}},
		RequestHeadersToRemove: []string{clusterHeader},
	}
}

// openRoute exists only for a request that Check has let through with
// everything routing and Guard need. Before Check, closedRoute is what matches;
// Check's answer makes Envoy look again.
func openRoute(name string) *routev3.Route {
	return &routev3.Route{
		Name: name,
		Match: &routev3.RouteMatch{
			PathSpecifier: path(name),
			DynamicMetadata: []*matcherv3.MetadataMatcher{
				present(dstKey), present(hostKey), present(pathKey), marked(),
			},
		},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: clusterHeader},
			Timeout:          duration(0), // the default 15 s would end SSE; Check sets limits per request
			PathRewrite:      fromCheck(pathKey),
			HostRewriteSpecifier: &routev3.RouteAction_HostRewrite{
				HostRewrite: fromCheck(hostKey),
			},
		}},
	}
}

// closedRoute answers 503: it is reached when Check let a request through
// without saying where to.
func closedRoute(name string) *routev3.Route {
	return &routev3.Route{
		Name:   name,
		Match:  &routev3.RouteMatch{PathSpecifier: path(name)},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 503}},
	}
}

// path matches the whole path, without the query.
func path(name string) *routev3.RouteMatch_SafeRegex {
	return &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
		Regex: "/servers/" + uuidPattern + "/" + name,
	}}
}

// fromCheck formats one value of Check's metadata.
func fromCheck(key string) string { return "%DYNAMIC_METADATA(" + checkFilter + ":" + key + ")%" }

func present(key string) *matcherv3.MetadataMatcher {
	return checkMetadata(key, &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
			SafeRegex: &matcherv3.RegexMatcher{Regex: ".+"},
		}},
	}})
}

func marked() *matcherv3.MetadataMatcher {
	return checkMetadata(markKey, &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{
		OrMatch: &matcherv3.OrMatcher{ValueMatchers: []*matcherv3.ValueMatcher{
			exactly(markPlain), exactly(markNone), exactly(markSeal), exactly(markAll), exactly(markList),
		}},
	}})
}

func checkMetadata(key string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return &matcherv3.MetadataMatcher{
		Filter: checkFilter,
		Path: []*matcherv3.MetadataMatcher_PathSegment{{
			Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key},
		}},
		Value: value,
	}
}
