package extauthz_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// opaque is a message that nobody reads: asking costs little.
type opaque struct{ bytes []byte }

type opaqueCodec struct{}

func (opaqueCodec) Name() string { return "proto" }

func (opaqueCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*opaque).bytes)}, nil
}

func (opaqueCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*opaque).bytes = data.Materialize()
	return nil
}

// envoyMetadata is what xds tells Envoy to say of each request.
func envoyMetadata() context.Context {
	return metadata.NewOutgoingContext(context.Background(), metadata.Pairs(
		"x-arbiter-peer-address", "192.0.2.1:51234", "x-arbiter-connection", "4711",
		"x-arbiter-stream", "7f3e2d1c-9a2b-4c1d-8e0f-3c4d5e6f7081",
	))
}

// realistic is a CheckRequest as Envoy 1.40 makes it from an HTTP client's
// tools/call of 1 KiB on /rpc, with the configuration that xds gives it.
func realistic(server, token string) []byte {
	body := `{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"search","arguments":{"query":"`
	body += strings.Repeat("x", 1024-len(body)-5) + `"}}}` + "\n"
	path := "/servers/" + server + "/rpc"
	lines := &corev3.HeaderMap{}
	for _, line := range [][2]string{
		{":authority", "localhost:8443"},
		{":path", path},
		{":method", "POST"},
		{":scheme", "https"},
		{"user-agent", "python-httpx/0.28.1"},
		{"accept", "application/json"},
		{"accept-encoding", "gzip, deflate, br, zstd"},
		{"accept-language", "en-GB,en;q=0.9"},
		{"authorization", "Bearer " + token},
		{"content-type", "application/json"},
		{"content-length", "1024"},
		{"cache-control", "no-cache"},
		{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"baggage", "tenant=a,build=7"},
		{"x-forwarded-for", "192.0.2.1"},
		{"x-forwarded-proto", "https"},
		{"x-request-id", "5e2c1b0a-7d3f-4b8e-9c6a-1f2e3d4c5b6a"},
		{"x-envoy-auth-partial-body", "false"},
	} {
		lines.Headers = append(lines.Headers, &corev3.HeaderValue{Key: line[0], RawValue: []byte(line[1])})
	}
	peer := func(address string, port uint32) *authv3.AttributeContext_Peer {
		return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}}}
	}
	out, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: peer("192.0.2.1", 51234), Destination: peer("192.0.2.9", 8443),
		Request: &authv3.AttributeContext_Request{
			Time: timestamppb.New(time.Unix(1_795_000_000, 123_456_000)),
			Http: &authv3.AttributeContext_HttpRequest{
				Id: "17302548394873625", Method: "POST", Path: path, Host: "localhost:8443", Scheme: "https",
				Protocol: "HTTP/1.1", Size: 1024, RawBody: []byte(body), HeaderMap: lines,
			},
		},
		MetadataContext:      &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}},
		RouteMetadataContext: &corev3.Metadata{},
	}})
	if err != nil {
		panic(err)
	}
	return out
}

// arms are what is compared, the yardstick first.
var arms = []string{"noop", "raw", "check"}

// BenchmarkCheckAgainstNoop measures CPU and allocations of a whole process per
// Check, over a unix socket, beside those of a stock grpc-go server that allows
// everything, and of one that does so without reading the request: what gRPC
// alone costs. They take turns, forth and back, so that a busy machine troubles
// all alike; read the ratios.
func BenchmarkCheckAgainstNoop(b *testing.B) {
	for _, streams := range []int{1, 32} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			srv := newServer()
			f := newFixture(b, srv)
			_, value := f.token(srv.GetId())
			in := realistic(srv.GetId(), value)
			control := filepath.Join(filepath.Dir(f.socket), "control.sock")
			running := make([]*arm, len(arms))
			for i, name := range arms {
				running[i] = startArm(b, name, control)
				running[i].ask(in, 2000, streams)
			}
			b.ResetTimer()
			compare(b, running, in, streams)
		})
	}
}

func compare(b *testing.B, running []*arm, in []byte, streams int) {
	const turns = 16
	cpu, allocations := make([]int64, len(running)), make([]int64, len(running))
	for turn := range turns {
		for i := range running {
			if turn%2 == 1 {
				i = len(running) - 1 - i
			}
			c, n := running[i].ask(in, b.N/turns+1, streams)
			cpu[i], allocations[i] = cpu[i]+c, allocations[i]+n
		}
	}
	n := float64(turns * (b.N/turns + 1))
	for i, name := range arms {
		b.ReportMetric(float64(cpu[i])/n, name+"-cpu-ns/op")
		b.ReportMetric(float64(allocations[i])/n, name+"-allocs/op")
		b.ReportMetric(float64(cpu[i])/float64(cpu[0]), name+"-ratio")
	}
}

// BenchmarkCheck measures Check alone, without gRPC: a call on /rpc, and on /mcp,
// whose answer may be a stream that is decided again.
func BenchmarkCheck(b *testing.B) {
	srv := newServer(func(s *pb.Server) { s.Modern = true })
	f := newFixture(b, srv)
	_, value := f.token(srv.GetId())
	b.Run("rpc", func(b *testing.B) { benchmarkCheck(b, f, realistic(srv.GetId(), value)) })
	in, err := proto.Marshal(mcpCall(srv.GetId(), value, modernEcho).
		with("mcp-protocol-version", "2026-07-28").with("mcp-method", "tools/call").with("mcp-name", "echo").proto())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("mcp", func(b *testing.B) { benchmarkCheck(b, f, in) })
}

func benchmarkCheck(b *testing.B, f *fixture, in []byte) {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(
		"x-arbiter-peer-address", "192.0.2.1:51234", "x-arbiter-connection", "4711",
		"x-arbiter-stream", "7f3e2d1c-9a2b-4c1d-8e0f-3c4d5e6f7081", ":authority", "extauthz", "content-type", "application/grpc",
	))
	b.ReportAllocs()
	for b.Loop() {
		if out, err := f.server.Check(ctx, in); err != nil || out[1] != 0 {
			b.Fatal(err)
		}
	}
}
