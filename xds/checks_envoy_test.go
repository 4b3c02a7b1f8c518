package xds_test

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// target is what Check says about a request that it lets through.
type target struct {
	cluster, dst, host, path string
	mark                     string // default "0"
	id                       string // JSON text
	server                   string
	answer                   map[string]string // response headers to add
	request                  map[string]string // request headers to set
	origin, expose           string            // for a browser
	without                  string            // a metadata key to leave out
}

// toURL makes a target of an httptest server's URL.
func toURL(rawURL string) target {
	host := strings.TrimPrefix(strings.TrimPrefix(rawURL, "https://"), "http://")
	return target{cluster: "plain", dst: host, host: host, path: "/up"}
}

func (to target) allow() *authv3.CheckResponse {
	if to.mark == "" {
		to.mark = "0"
	}
	metadata := map[string]*structpb.Value{}
	for key, value := range map[string]string{
		"dst": to.dst, "host": to.host, "path": to.path, "guard": to.mark, "server": to.server, "id": to.id,
		"origin": to.origin, "expose": to.expose,
	} {
		if key != to.without && value != "" {
			metadata[key] = structpb.NewStringValue(value)
		}
	}
	ok := &authv3.OkHttpResponse{
		Headers:         []*corev3.HeaderValueOption{header("x-arbiter-cluster", to.cluster)},
		HeadersToRemove: []string{"authorization", "cookie"},
	}
	for name, value := range to.request {
		ok.Headers = append(ok.Headers, header(name, value))
	}
	for name, value := range to.answer {
		ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, header(name, value))
	}
	return &authv3.CheckResponse{
		HttpResponse:    &authv3.CheckResponse_OkResponse{OkResponse: ok},
		DynamicMetadata: &structpb.Struct{Fields: metadata},
	}
}

func deny(code int32, body string) *authv3.CheckResponse {
	return &authv3.CheckResponse{
		Status: status.New(codes.PermissionDenied, "denied").Proto(),
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(code)}, Body: body,
			Headers: []*corev3.HeaderValueOption{
				header("content-type", "application/json"), header("arbiter-decision", "deny"),
				header("www-authenticate", "Bearer ours"), header("access-control-allow-origin", "https://ours"),
			},
		}},
	}
}

func header(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
