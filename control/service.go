package control

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
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
// and tell when a token was last used.
func (s *service) Record(ctx context.Context, in *pb.RecordRequest) (*pb.RecordResponse, error) {
	if len(in.GetRecords()) > recordsAtOnce || len(in.GetUsed()) > recordsAtOnce {
		return nil, status.Error(codes.InvalidArgument, "too many records at once")
	}
	var (
		kept []store.DecisionRecord
		used = map[string]time.Time{}
	)
	for _, u := range in.GetUsed() {
		used[u.GetCredential()] = time.UnixMilli(u.GetUnixMs())
	}
	for _, line := range in.GetRecords() {
		var head struct {
			RequestID  string    `json:"request_id"`
			Timestamp  time.Time `json:"timestamp"`
			Outcome    string    `json:"outcome"`
			Credential string    `json:"credential"`
		}
		if err := json.Unmarshal(line, &head); err != nil {
			return nil, status.Error(codes.InvalidArgument, "a record is not JSON")
		}
		kept = append(kept, store.DecisionRecord{RequestID: head.RequestID, Time: head.Timestamp, JSON: line})
		if head.Outcome == "allow" && head.Credential != "" && head.Timestamp.After(used[head.Credential]) {
			used[head.Credential] = head.Timestamp
		}
	}
	err := errors.Join(s.control.cfg.Store.AddDecisions(ctx, kept), s.control.cfg.Store.TouchTokens(ctx, used))
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &pb.RecordResponse{}, nil
}

// Revocations implements pb.ControlServer.
func (s *service) Revocations(stream pb.Control_RevocationsServer) error {
	return s.control.hub.Serve(stream)
}
