package control

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// service answers extauthz.
type service struct {
	pb.UnimplementedControlServer
	control *Control
}

const recordsAtOnce = 8192

// Resolve implements pb.ControlServer. Row and position are read in one
// transaction, so the answer is as old as its seq says.
func (s *service) Resolve(ctx context.Context, in *pb.ResolveRequest) (*pb.ResolveResponse, error) {
	if len(in.GetDigest()) != len(token.Digest{}) {
		return nil, status.Error(codes.InvalidArgument, "a digest has 32 bytes")
	}
	found, at, err := s.control.cfg.Store.TokenByDigest(ctx, token.Digest(in.GetDigest()))
	if errors.Is(err, store.ErrNotFound) {
		return nil, status.Error(codes.NotFound, "no token has this digest")
	}
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out := &pb.ResolveResponse{
		TokenId: found.ID, Name: found.Name, ServerId: found.Server.String(),
		Scopes: found.Scopes, Narrowed: found.Narrowed, Seq: at.Seq, Epoch: at.Epoch, Database: at.Database,
	}
	if !found.ExpiresAt.IsZero() {
		out.ExpiresUnix = found.ExpiresAt.Unix()
	}
	return out, nil
}

// UpstreamHeaders implements pb.ControlServer.
func (s *service) UpstreamHeaders(ctx context.Context, in *pb.UpstreamHeadersRequest) (*pb.UpstreamHeadersResponse, error) {
	id, err := identity.ParseServerID(in.GetServerId())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	headers, revision, err := s.control.cfg.Store.UpstreamHeaders(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, status.Error(codes.NotFound, "no such server")
	}
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out := &pb.UpstreamHeadersResponse{HeadersRevision: revision}
	for _, h := range headers {
		out.Headers = append(out.Headers, &pb.Header{Name: h.Name, Value: h.Value.Reveal()})
	}
	return out, nil
}

// Record implements pb.ControlServer: the newest records are kept for explain,
// with the argument values that came for some, and tell when a token was last
// used.
func (s *service) Record(ctx context.Context, in *pb.RecordRequest) (*pb.RecordResponse, error) {
	if len(in.GetRecords()) > recordsAtOnce || len(in.GetUsed()) > recordsAtOnce {
		return nil, status.Error(codes.InvalidArgument, "too many records at once")
	}
	used := map[string]time.Time{}
	for _, u := range in.GetUsed() {
		used[u.GetCredential()] = time.UnixMilli(u.GetUnixMs())
	}
	values := map[string]*pb.Values{}
	for _, v := range in.GetValues() {
		values[v.GetDecisionId()] = v
	}
	kept := make([]store.Decision, 0, len(in.GetRecords()))
	for _, line := range in.GetRecords() {
		head, err := record.ParseHead(line)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		kept = append(kept, decisionOf(line, head, values[head.ID]))
		if head.Outcome == record.Allow && head.Credential != "" && head.Time.After(used[head.Credential]) {
			used[head.Credential] = head.Time
		}
	}
	err := errors.Join(s.control.cfg.Store.AddDecisions(ctx, kept), s.control.cfg.Store.TouchTokens(ctx, used))
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &pb.RecordResponse{}, nil
}

// decisionOf is a record as it is kept. Values that are not of its server, or
// not what a replica sends, stay out: the store says whether the others may be
// kept.
func decisionOf(line []byte, head record.Head, values *pb.Values) store.Decision {
	out := store.Decision{ID: head.ID, Server: head.Server, Time: head.Time, JSON: line}
	arguments := jsontext.Value(values.GetArguments())
	if values.GetServerId() != head.Server || len(arguments) > record.MostValues || arguments.Kind() != '[' || !arguments.IsValid() {
		return out
	}
	out.Arguments, out.Mask = arguments, values.GetMask()
	return out
}

// Revocations implements pb.ControlServer.
func (s *service) Revocations(stream pb.Control_RevocationsServer) error {
	return s.control.hub.Serve(stream)
}
