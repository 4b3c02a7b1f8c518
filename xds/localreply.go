package xds

import (
	"fmt"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A failure is a class of answers that Envoy makes itself on a route, and what
// the caller gets instead. Denials of Check and answers of Guard are in none:
// their statuses and bodies stay as they are.
type failure struct {
	when    string // CEL over the details that Envoy gives for a local reply
	flags   []string
	status  uint32
	code    int // JSON-RPC
	message string
}

// failures are listed in the order in which they are tried.
func failures() []failure {
	return []failure{
		{
			when:   `response.code_details == "request_payload_too_large"`,
			status: 413, code: -31413, message: "the request body is too large",
		},
		{
			// Check is down, slow or gave garbage; Guard the same; a route stayed
			// closed; a profile is not there yet; a limit of this process.
			when: `response.code_details.startsWith("ext_authz_error") || response.code_details.startsWith("ext_authz_invalid") ||` +
				` response.code_details.startsWith("ext_proc_error") || response.code_details == "direct_response" ||` +
				` response.code_details == "cluster_not_found" || response.code_details.contains("{overflow}")`,
			status: 503, code: -31503, message: "the gateway cannot decide about this request now",
		},
		{
			flags:  []string{"UT"}, // the call limit, also per try
			status: 504, code: -31504, message: "the server did not answer in time",
		},
		{
			flags:  []string{"UF", "UC", "UH", "UPE", "UR", "LR"},
			status: 502, code: -31502, message: "the server could not be reached or broke off",
		},
	}
}

// localReplies gives Envoy's own answers the bodies of the contract: JSON-RPC
// on /rpc and /mcp, RFC 9457 elsewhere. The first mapper that matches is used;
// the last one matches all and adds only headers, also to answers that are made
// before the filters exist.
func localReplies() *hcmv3.LocalReplyConfig {
	var mappers []*hcmv3.ResponseMapper
	for _, f := range failures() {
		mappers = append(mappers,
			f.mapper(allFilters(f.filter(), idKnown()), `"id":`+fromCheck(idKey)+`,`),
			f.mapper(allFilters(f.filter(), onRoute(rpcRoute)), `"id":null,`),
			f.mapper(allFilters(f.filter(), onRoute(mcpRoute)), ``),
		)
	}
	mappers = append(mappers, problems()...)
	mappers = append(mappers, &hcmv3.ResponseMapper{Filter: always(), HeadersToAdd: localReplyHeaders()})
	return &hcmv3.LocalReplyConfig{Mappers: mappers}
}

func (f failure) filter() *accesslogv3.AccessLogFilter {
	if len(f.flags) > 0 {
		return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: f.flags},
		}}
	}
	return cel(f.when)
}

func (f failure) mapper(when *accesslogv3.AccessLogFilter, id string) *hcmv3.ResponseMapper {
	body := fmt.Sprintf(`{"jsonrpc":"2.0",%s"error":{"code":%d,"message":"%s","data":{"request_id":"%%STREAM_ID%%"}}}`,
		id, f.code, f.message)
	return &hcmv3.ResponseMapper{
		Filter:             when,
		StatusCode:         number(f.status),
		BodyFormatOverride: text(body, "application/json"),
		HeadersToAdd:       localReplyHeaders(),
	}
}

// problems are RFC 9457, for what has no route and for requests that are refused
// while they are read. The details are fixed words of Envoy's there.
func problems() []*hcmv3.ResponseMapper {
	const refused = `response.code_details.startsWith("http1.") || response.code_details.startsWith("http2.") ||` +
		` response.code_details in ["low_version", "missing_host_header", "missing_path_rejected",` +
		` "absolute_path_rejected", "path_normalization_failed", "request_headers_failed_strict_check",` +
		` "request_header_timeout", "request_overall_timeout", "upgrade_failed", "overload"]`
	return []*hcmv3.ResponseMapper{
		problem(cel(`response.code_details == "route_not_found"`),
			`{"title":"Not Found","status":404,"detail":"nothing is served at this path"}`),
		problem(cel(refused),
			`{"title":"request refused","status":%RESPONSE_CODE%,"detail":"%RESPONSE_CODE_DETAILS%"}`),
	}
}

func problem(when *accesslogv3.AccessLogFilter, body string) *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter:             when,
		BodyFormatOverride: text(body, "application/problem+json"),
		HeadersToAdd:       localReplyHeaders(),
	}
}

func text(format, contentType string) *corev3.SubstitutionFormatString {
	return &corev3.SubstitutionFormatString{
		ContentType: contentType,
		Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: inline(format + "\n"),
		},
	}
}

func onRoute(name string) *accesslogv3.AccessLogFilter {
	return cel(`xds.route_name == "` + name + `"`)
}

// idKnown holds when Check has read the message's id.
func idKnown() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_MetadataFilter{
		MetadataFilter: &accesslogv3.MetadataFilter{
			Matcher:            present(idKey),
			MatchIfKeyNotFound: wrapperspb.Bool(false),
		},
	}}
}

func always() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_NotHealthCheckFilter{
		NotHealthCheckFilter: &accesslogv3.NotHealthCheckFilter{},
	}}
}

func cel(expression string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name: "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{
				TypedConfig: pack(&celv3.ExpressionFilter{Expression: expression}),
			},
		},
	}}
}

func allFilters(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: filters},
	}}
}
