package extauthz

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A panic ends one request as an error, which is 503, and not every other
// request and stream of the process with it.

func (s *Server) recoverUnary(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			out, err = nil, s.panicked(fault)
		}
	}()
	return next(ctx, in)
}

func (s *Server) recoverStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = s.panicked(fault)
		}
	}()
	return next(server, stream)
}

// panicked logs where it happened; the value itself may hold a caller's bytes.
func (s *Server) panicked(any) error {
	s.metrics.panics.Inc()
	s.cfg.Slog.Error("a request made extauthz panic: please report it", "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal fault")
}
