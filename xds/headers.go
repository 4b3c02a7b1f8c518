package xds

import (
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// untrustedRequestHeaders are removed from every request before anything looks
// at it: what the gateway itself says to its parts and to upstreams.
//   - x-arbiter-, arbiter-: the gateway's own names
//   - x-envoy-: would set time-outs, retries and addresses
//   - x-request-id: the request id is Envoy's, never the caller's
//   - x-forwarded-, forwarded, x-real-ip: the caller's address is the connection's, or
//     what the trusted proxies wrote into x-forwarded-for
//   - proxy-: credentials and options for a proxy
func untrustedRequestHeaders(s State) []*mutationv3.HeaderMutation {
	forwarded := "x-forwarded-.*"
	if s.ProxyHops > 0 {
		forwarded = "x-forwarded-([^f].*|f|f[^o].*|fo|fo[^r].*|for.+)" // all but -for
	}
	return []*mutationv3.HeaderMutation{
		removePrefix("x-arbiter-"),
		removePrefix("arbiter-"),
		removePrefix("x-envoy-"),
		remove("x-request-id"),
		removeMatching(forwarded),
		remove("forwarded"),
		remove("x-real-ip"),
		removePrefix("proxy-"),
	}
}

// untrustedAnswerHeaders are removed from every answer of an upstream (contract,
// section 1): they would speak in the gateway's name, or about its origin.
func untrustedAnswerHeaders() []*mutationv3.HeaderMutation {
	return []*mutationv3.HeaderMutation{
		removePrefix("arbiter-"),
		removePrefix("x-arbiter-"),
		removePrefix("x-envoy-"),
		removePrefix("access-control-"),
		removePrefix("proxy-"),
		remove("www-authenticate"),
		remove("set-cookie"),
		remove("location"),
		remove("clear-site-data"),
		remove("strict-transport-security"),
		remove("alt-svc"),
		remove("refresh"),
		remove("x-request-id"),
	}
}

// requestIDHeader carries the request id on every answer.
const requestIDHeader = "arbiter-request-id"

// answerHeaders are on every answer, whoever made it. Answers of upstreams and
// of Check get them from the first filter, which sees them last. Guard's own
// and those made while a request is read pass no filter: there the local reply
// sets them (localReplyHeaders).
//
// The browser's origin, when Check has allowed it, is in Check's metadata. It is
// not there on a denial, whose headers Check sets itself.
func answerHeaders() []*corev3.HeaderValueOption {
	return []*corev3.HeaderValueOption{
		setHeader(requestIDHeader, "%STREAM_ID%"),
		setHeader("x-content-type-options", "nosniff"),
		setHeader("access-control-allow-origin", fromCheck(originKey)),
		setHeader("access-control-expose-headers", fromCheck(exposeKey)),
	}
}

// localReplyHeaders give an id of its own to the answer to a request that was
// never read whole, and has none: a value that is empty overwrites nothing.
func localReplyHeaders() []*corev3.HeaderValueOption {
	return append([]*corev3.HeaderValueOption{setHeader(requestIDHeader, "%UNIQUE_ID%")}, answerHeaders()...)
}

func setAnswerHeaders() []*mutationv3.HeaderMutation {
	var all []*mutationv3.HeaderMutation
	for _, h := range answerHeaders() {
		all = append(all, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: h}})
	}
	return all
}

func setHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func remove(name string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}}
}

func removePrefix(prefix string) *mutationv3.HeaderMutation {
	return removeMatch(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}})
}

// removeAll removes every header; it is meant for trailers, which stop here.
func removeAll() *mutationv3.HeaderMutation {
	return removeMatching(".*")
}

// removeMatching removes headers whose whole name matches.
func removeMatching(regex string) *mutationv3.HeaderMutation {
	return removeMatch(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: regex},
	}})
}

func removeMatch(m *matcherv3.StringMatcher) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: m},
	}}
}

func earlyHeaderMutation(s State) []*corev3.TypedExtensionConfig {
	return []*corev3.TypedExtensionConfig{
		extension("envoy.http.early_header_mutation.header_mutation",
			&earlyv3.HeaderMutation{Mutations: untrustedRequestHeaders(s)}),
	}
}

// trailers stop at the gateway, in both directions.
func trailers() []*mutationv3.HeaderMutation { return []*mutationv3.HeaderMutation{removeAll()} }
