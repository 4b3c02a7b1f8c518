// Package wire reads Envoy's CheckRequest and writes its CheckResponse in
// protobuf's wire format, without the generated types.
//
// It is the outer edge of Check: bytes -> Request -> the eight steps -> Answer
// -> bytes. The generated types make some hundred objects of each request,
// most for fields that nobody asks for; reading the few that decide and writing
// the answer in place halves what a Check costs (BenchmarkCheckAgainstNoop in
// the package above).
//
// The bytes come from Envoy, which is trusted, and carry a caller's, which are
// not: what is malformed is an error, never a request with something missing.
// Read and Append hold to protobuf's own rules, so that a message means here
// what it means to Envoy; tests compare them with the generated types.
package wire

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers, as in envoy/service/auth/v3/external_auth.proto and
// attribute_context.proto, envoy/config/core/v3/base.proto,
// google/rpc/status.proto and google/protobuf/struct.proto.
const (
	requestAttributes protowire.Number = 1  // CheckRequest.attributes
	attributesRequest protowire.Number = 4  // AttributeContext.request
	requestHTTP       protowire.Number = 2  // AttributeContext.Request.http
	httpMethod        protowire.Number = 2  // AttributeContext.HttpRequest.method
	httpPath          protowire.Number = 4  // .path
	httpHost          protowire.Number = 5  // .host
	httpSize          protowire.Number = 9  // .size
	httpRawBody       protowire.Number = 12 // .raw_body
	httpHeaderMap     protowire.Number = 13 // .header_map
	mapHeaders        protowire.Number = 1  // HeaderMap.headers
	headerKey         protowire.Number = 1  // HeaderValue.key
	headerValue       protowire.Number = 2  // HeaderValue.value
	headerRawValue    protowire.Number = 3  // HeaderValue.raw_value

	responseStatus   protowire.Number = 1 // CheckResponse.status
	responseDenied   protowire.Number = 2 // CheckResponse.denied_response
	responseOK       protowire.Number = 3 // CheckResponse.ok_response
	responseMetadata protowire.Number = 4 // CheckResponse.dynamic_metadata
	statusCode       protowire.Number = 1 // google.rpc.Status.code
	deniedStatus     protowire.Number = 1 // DeniedHttpResponse.status
	deniedHeaders    protowire.Number = 2 // .headers
	deniedBody       protowire.Number = 3 // .body
	httpStatusCode   protowire.Number = 1 // envoy.type.v3.HttpStatus.code
	okHeaders        protowire.Number = 2 // OkHttpResponse.headers
	okRemove         protowire.Number = 5 // .headers_to_remove
	okAnswer         protowire.Number = 6 // .response_headers_to_add
	optionHeader     protowire.Number = 1 // HeaderValueOption.header
	optionAction     protowire.Number = 3 // .append_action
	structFields     protowire.Number = 1 // Struct.fields
	fieldName        protowire.Number = 1 // key of a map entry
	fieldValue       protowire.Number = 2 // value of a map entry
	valueString      protowire.Number = 3 // Value.string_value
)
