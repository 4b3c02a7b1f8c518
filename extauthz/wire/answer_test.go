package wire_test

import (
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/extauthz/wire"
)

func overwrite(lines []wire.Pair) (out []*corev3.HeaderValueOption) {
	for _, line := range lines {
		out = append(out, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: line[0], Value: line[1]},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return out
}

func allowedProto(a wire.Allowed) *authv3.CheckResponse {
	answer := overwrite(a.Answer)
	if a.Vary != "" {
		answer = append(answer, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: "vary", Value: a.Vary},
			AppendAction: corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD,
		})
	}
	metadata := &structpb.Struct{}
	for _, field := range a.Metadata {
		if metadata.Fields == nil {
			metadata.Fields = map[string]*structpb.Value{}
		}
		metadata.Fields[field[0]] = structpb.NewStringValue(field[1])
	}
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			Headers: overwrite(a.Set), HeadersToRemove: a.Remove, ResponseHeadersToAdd: answer,
		}},
		DynamicMetadata: metadata,
	}
}

func deniedProto(d wire.Denied) *authv3.CheckResponse {
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{Code: 7},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(d.Status)}, Headers: overwrite(d.Headers), Body: string(d.Body),
		}},
	}
}

// same compares an appended answer with the generated types, whole.
func same(t rapid.TB, message []byte, err error, want *authv3.CheckResponse) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	head, message := string(message[:4]), message[4:]
	if head != "kept" {
		t.Errorf("what was there before is now %q", head)
	}
	got := new(authv3.CheckResponse)
	if err := proto.Unmarshal(message, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("appended %v\nwant %v", got, want)
	}
}

// texts are of all lengths at which a length takes another byte.
var texts = rapid.OneOf(
	rapid.StringN(0, 40, -1),
	rapid.Map(rapid.IntRange(100, 140), func(n int) string { return strings.Repeat("x", n) }),
	rapid.Map(rapid.IntRange(16_350, 16_400), func(n int) string { return strings.Repeat("y", n) }),
)

func pairs(distinct bool) *rapid.Generator[[]wire.Pair] {
	pair := rapid.Custom(func(t *rapid.T) wire.Pair { return wire.Pair{texts.Draw(t, "name"), texts.Draw(t, "value")} })
	if distinct {
		return rapid.SliceOfNDistinct(pair, 0, 8, func(p wire.Pair) string { return p[0] })
	}
	return rapid.SliceOfN(pair, 0, 8)
}

func TestAppendSaysWhatTheGeneratedTypesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := wire.Allowed{
			Set: pairs(false).Draw(t, "set"), Answer: pairs(false).Draw(t, "answer"), Metadata: pairs(true).Draw(t, "metadata"),
			Remove: rapid.SliceOfN(texts, 0, 4).Draw(t, "remove"), Vary: rapid.SampledFrom([]string{"", "Origin"}).Draw(t, "vary"),
		}
		out, err := a.Append([]byte("kept"))
		same(t, out, err, allowedProto(a))

		d := wire.Denied{
			Status: rapid.IntRange(0, 599).Draw(t, "status"), Headers: pairs(false).Draw(t, "headers"), Body: []byte(texts.Draw(t, "body")),
		}
		out, err = d.Append([]byte("kept"))
		same(t, out, err, deniedProto(d))
	})
}

// A text that is not UTF-8 is an error of ours, not a message that Envoy could
// read in some way of its own.
func TestAppendRefusesWhatIsNotUTF8(t *testing.T) {
	const bad = "a\xff"
	for name, answer := range map[string]interface{ Append([]byte) ([]byte, error) }{
		"a header's name":        &wire.Allowed{Set: []wire.Pair{{bad, ""}}},
		"a header's value":       &wire.Allowed{Set: []wire.Pair{{"a", bad}}},
		"a header to remove":     &wire.Allowed{Remove: []string{bad}},
		"an answer's header":     &wire.Allowed{Answer: []wire.Pair{{"a", bad}}},
		"a field's name":         &wire.Allowed{Metadata: []wire.Pair{{bad, ""}}},
		"a field's value":        &wire.Allowed{Metadata: []wire.Pair{{"a", bad}, {"b", "good"}}},
		"a denial's header":      &wire.Denied{Headers: []wire.Pair{{"a", bad}}},
		"a denial's body":        &wire.Denied{Body: []byte(bad)},
		"a name cut in a letter": &wire.Allowed{Set: []wire.Pair{{"a", "Zo\xc3"}}},
	} {
		if out, err := answer.Append(nil); !errors.Is(err, wire.ErrText) {
			t.Errorf("%s: %x, %v", name, out, err)
		}
	}
}
