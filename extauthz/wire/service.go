package wire

import (
	"context"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Message is a message in protobuf's wire format.
type Message []byte

// Checker answers Envoy's ext_authz questions: a CheckRequest in, its
// CheckResponse out. The message is the caller's to keep: nobody changes it.
type Checker interface {
	Check(ctx context.Context, in Message) (Message, error)
}

// Register lets server answer Check. It needs Codec.
func Register(server grpc.ServiceRegistrar, checker Checker) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: authv3.Authorization_ServiceDesc.ServiceName,
		HandlerType: (*Checker)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Check", Handler: handle}},
	}, checker)
}

// handle has the form that gRPC asks for.
//
//nolint:revive // the context comes second there
func handle(checker any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	in := new(Message)
	if err := decode(in); err != nil {
		return nil, err
	}
	check := func(ctx context.Context, in any) (any, error) {
		out, err := checker.(Checker).Check(ctx, *in.(*Message))
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
	if intercept == nil {
		return check(ctx, in)
	}
	info := &grpc.UnaryServerInfo{Server: checker, FullMethod: authv3.Authorization_Check_FullMethodName}
	return intercept(ctx, in, info, check)
}

// Codec is gRPC's own for protobuf, but hands a Message over as it is.
func Codec() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if message, ok := v.(*Message); ok {
		return mem.BufferSlice{mem.SliceBuffer(*message)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. A Message is a copy of its own: gRPC's
// buffers are used again, and what was read of a request may outlive it.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if message, ok := v.(*Message); ok {
		*message = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
