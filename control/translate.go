package control

import (
	"context"
	"fmt"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/xds"
	"google.golang.org/protobuf/proto"
)

func (f *feed) gateway() proto.Message {
	g := f.cfg.Gateway
	out := &pb.Gateway{
		BaseUrl: g.BaseURL, Hosts: g.Hosts,
		SessionSeconds:       int64(g.Session / time.Second),
		StreamsPerCredential: uint32(g.StreamsPerCredential),
		DecisionLogRequired:  g.RecordsRequired,
		PolicyRequestHeaders: g.PolicyRequestHeaders, PolicyUpstreamHeaders: g.PolicyUpstreamHeaders,
	}
	for _, prefix := range g.UpstreamNetworks {
		out.UpstreamNetworks = append(out.UpstreamNetworks, prefix.String())
	}
	for _, listener := range f.listeners.all() {
		out.OwnListeners = append(out.OwnListeners, listener.String())
	}
	return out
}

func (f *feed) keys(ctx context.Context) (xds.Resource, error) {
	keys, err := f.cfg.Store.Keys(ctx)
	if err != nil {
		return xds.Resource{}, err
	}
	out := &pb.Keys{TokenMac: keys.TokenMAC[:]}
	for _, k := range keys.Sessions {
		out.SessionKeys = append(out.SessionKeys, &pb.SessionKey{Id: k.ID, Key: k.Key[:]})
	}
	return xds.Resource{Name: xds.Name{Type: xds.TypeKeys, Name: "keys"}, Body: out}, nil
}

// policy reads the policy that decides, and notes which one that is.
func (f *feed) policy(ctx context.Context) (xds.Resource, error) {
	p, err := f.cfg.Store.Policy(ctx)
	if err != nil {
		return xds.Resource{}, err
	}
	f.policies.Decides(p)
	return xds.Resource{
		Name: xds.Name{Type: xds.TypePolicy, Name: "policy"},
		Body: &pb.Policy{Revision: p.Revision, Files: p.Files},
	}, nil
}

// server translates one server record, noting its bundle. One that cannot be
// translated is a disabled server.
func (f *feed) server(ctx context.Context, srv store.Server) (xds.Resource, error) {
	id := srv.ID.String()
	out, usesCA, err := translate(srv)
	if err != nil {
		f.cfg.Slog.Error("a server cannot be served and is disabled", "server", id, "error", err)
		out, usesCA = &pb.Server{Id: id, Name: srv.Name}, false
	}
	if out.GetDenyChangedTools() {
		if out.ChangedTools, err = f.cfg.Store.ChangedTools(ctx, srv.ID); err != nil {
			return xds.Resource{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cas, id)
	if usesCA {
		f.cas[id] = srv.CA
	}
	return xds.Resource{Name: xds.Name{Type: xds.TypeServer, Name: id}, Body: out}, nil
}

func translate(srv store.Server) (out *pb.Server, usesCA bool, err error) {
	out = &pb.Server{
		Id: srv.ID.String(), Name: srv.Name, Enabled: srv.Enabled,
		Legacy: srv.Legacy, Modern: srv.Modern,
		AllowedOrigins: srv.AllowedOrigins, Labels: srv.Labels,
		MaxBody:          uint32(srv.Limits.MaxBody),
		CallLimitSeconds: uint32(srv.Limits.CallLimit / time.Second),
		Batches:          srv.Batches, LiteralDenials: srv.LiteralDenials,
		HeadersRevision: srv.HeadersRevision, StoppedRevision: srv.StoppedRevision,
		Grants: srv.Grants, PolicyData: srv.PolicyData, DenyChangedTools: srv.ToolChanges == store.ToolChangesDeny,
	}
	if r := srv.RecordArguments; r != nil {
		out.RecordArguments = &pb.RecordArguments{Mask: r.Mask}
	}
	var tls [2]bool
	if out.Mcp, tls[0], err = upstreamOf(srv.MCP, srv.CA); err != nil {
		return nil, false, fmt.Errorf("mcp: %w", err)
	}
	if out.Rpc, tls[1], err = upstreamOf(srv.RPC, srv.CA); err != nil {
		return nil, false, fmt.Errorf("rpc: %w", err)
	}
	if usesCA = srv.CA != "" && (tls[0] || tls[1]); usesCA {
		err = xds.CheckCA(srv.CA)
	}
	return out, usesCA, err
}

func upstreamOf(text, ca string) (out *pb.Upstream, tls bool, err error) {
	if text == "" {
		return nil, false, nil
	}
	parsed, err := upstream.ParseURL(text)
	if err != nil {
		return nil, false, err
	}
	return &pb.Upstream{Url: text, Cluster: xds.ProfileName(parsed.TLS(), ca)}, parsed.TLS(), nil
}
