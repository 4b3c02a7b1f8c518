package xds

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	inputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	metadatamatcherv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/metadata/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
)

// composite runs the filter config for the requests and answers that match.
func composite(when *predicate, name string, config proto.Message) *matchingv3.ExtensionWithMatcher {
	run := &compositev3.ExecuteFilterAction{TypedConfig: extension(name, config)}
	return &matchingv3.ExtensionWithMatcher{
		ExtensionConfig: extension("composite", &compositev3.Composite{}),
		XdsMatcher: &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherList_{
			MatcherList: &xdsmatcherv3.Matcher_MatcherList{
				Matchers: []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher{{
					Predicate: when,
					OnMatch: &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
						Action: &xdscorev3.TypedExtensionConfig{Name: "run", TypedConfig: pack(run)},
					}},
				}},
			},
		}},
	}
}

func allOf(parts ...*predicate) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{
		AndMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: parts},
	}}
}

func anyOf(parts ...*predicate) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: parts},
	}}
}

func not(part *predicate) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: part}}
}

// A condition fills in how an input is compared.
type condition func(*xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate)

func single(input *xdscorev3.TypedExtensionConfig, compare condition) *predicate {
	p := &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{Input: input}
	compare(p)
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{SinglePredicate: p}}
}

func responseHeader(name string) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{
		Name:        "response-header",
		TypedConfig: pack(&matcherv3.HttpResponseHeaderMatchInput{HeaderName: name}),
	}
}

func checkMetadataInput(key string) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{
		Name: "check-metadata",
		TypedConfig: pack(&inputv3.DynamicMetadataInput{
			Filter: checkFilter,
			Path: []*inputv3.DynamicMetadataInput_PathSegment{{
				Segment: &inputv3.DynamicMetadataInput_PathSegment_Key{Key: key},
			}},
		}),
	}
}

func metadataEquals(value string) condition {
	custom := &xdscorev3.TypedExtensionConfig{
		Name:        "metadata",
		TypedConfig: pack(&metadatamatcherv3.Metadata{Value: exactly(value)}),
	}
	return func(p *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate) {
		p.Matcher = &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch{CustomMatch: custom}
	}
}

func exactly(value string) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}},
	}}
}

// matchesRegex compares the whole value.
func matchesRegex(regex string, fold bool) condition {
	text := &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_SafeRegex{
		SafeRegex: &xdsmatcherv3.RegexMatcher{
			EngineType: &xdsmatcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &xdsmatcherv3.RegexMatcher_GoogleRE2{}},
			Regex:      regex,
		},
	}}
	if fold {
		text.GetSafeRegex().Regex = "(?i)" + regex
	}
	return func(p *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate) {
		p.Matcher = &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: text}
	}
}
