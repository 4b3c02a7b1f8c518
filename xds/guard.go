package xds

import (
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	mutationfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// Check marks each answer it lets through (dynamic metadata "guard"): what the
// Guard has to do with it. A request without a mark has no open route.
const (
	markKey   = "guard"
	markPlain = "0"    // nothing, when the answer is plain
	markNone  = "none" // the same, and a bare 202 is plain too: no answer is due
	markSeal  = "seal" // put a sealed session id on the answer to initialize
	markAll   = "all"  // see every answer
	markList  = "list" // the same: it may hold a list
)

// guardGate runs Guard for the answers that need it. It matches on Check's
// mark, which no header mutation can remove; only with a mark, so that denials
// and failures of Check do not visit Guard:
//
//	mark is seal, all or list, or
//	mark is 0 and the answer is not plain, or
//	mark is none and the answer is neither plain nor a bare 202
func guardGate(s State) *matchingv3.ExtensionWithMatcher {
	gate := anyOf(
		mark(markSeal),
		mark(markAll),
		mark(markList),
		allOf(mark(markPlain), not(plainAnswer())),
		allOf(mark(markNone), not(plainAnswer()), not(bareAccepted())),
	)
	return composite(gate, "guard", guard(s))
}

// plainAnswer is what may pass without Guard: JSON, but never with a status that
// the caller must not see from an upstream.
func plainAnswer() *predicate {
	return allOf(
		not(answerStatus(`401|407|3..`)),
		mediaType(`application/json[ \t]*(;[^,]*)?`),
	)
}

// bareAccepted is the answer to what wants none: a 202 without a content type.
func bareAccepted() *predicate {
	return allOf(answerStatus(`202`), not(mediaType(`.*`)))
}

// dropSessionID removes the upstream's own session id from every answer but
// the one on which Guard replaces it: some SDKs repeat it on each answer, and
// clients break on one they were not given.
func dropSessionID() *matchingv3.ExtensionWithMatcher {
	return composite(not(mark(markSeal)), "drop-session-id", &mutationfilterv3.HeaderMutation{
		Mutations: &mutationfilterv3.Mutations{
			ResponseMutations: []*mutationv3.HeaderMutation{remove("mcp-session-id")},
		},
	})
}

// guard keeps one gRPC stream open as long as the answer streams, so that
// extauthz can cut it. It fails closed.
func guard(s State) *procv3.ExternalProcessor {
	return &procv3.ExternalProcessor{
		GrpcService:      extauthz(guardCluster, 0),
		StatPrefix:       "guard",
		FailureModeAllow: false,
		StatusOnError:    &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		MessageTimeout:   duration(s.Times.Guard),
		ProcessingMode: &procv3.ProcessingMode{
			RequestHeaderMode:   procv3.ProcessingMode_SKIP,
			ResponseHeaderMode:  procv3.ProcessingMode_SEND,
			RequestBodyMode:     procv3.ProcessingMode_NONE,
			ResponseBodyMode:    procv3.ProcessingMode_NONE,
			RequestTrailerMode:  procv3.ProcessingMode_SKIP,
			ResponseTrailerMode: procv3.ProcessingMode_SEND,
		},
		AllowModeOverride: true,
		MutationRules: &mutationv3.HeaderMutationRules{
			DisallowAll:     yes(),
			DisallowIsError: yes(),
			AllowExpression: &matcherv3.RegexMatcher{
				Regex: `^(mcp-session-id|content-length|content-type|www-authenticate|arbiter-decision)$`,
			},
		},
		MetadataOptions: &procv3.MetadataOptions{
			ForwardingNamespaces: &procv3.MetadataOptions_MetadataNamespaces{Untyped: []string{checkFilter}},
		},
	}
}

func mark(value string) *predicate {
	return single(checkMetadataInput(markKey), metadataEquals(value))
}

func answerStatus(regex string) *predicate {
	return single(responseHeader(":status"), matchesRegex(regex, false))
}

func mediaType(regex string) *predicate {
	return single(responseHeader("content-type"), matchesRegex(regex, true))
}

type predicate = xdsmatcherv3.Matcher_MatcherList_Predicate
