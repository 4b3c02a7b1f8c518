package control

import (
	"context"
	"fmt"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
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

func (f *feed) policy() xds.Resource {
	bundle := policies.Standard()
	return xds.Resource{
		Name: xds.Name{Type: xds.TypePolicy, Name: "policy"},
		Body: &pb.Policy{Revision: bundle.Revision(), Files: bundle.Files},
	}
}

// server translates one server record, noting its bundle. One that cannot be
// translated is a disabled server.
func (f *feed) server(srv store.Server) xds.Resource {
	id := srv.ID.String()
	out, usesCA, err := translate(srv)
	if err != nil {
		f.cfg.Slog.Error("a server cannot be served and is disabled", "server", id, "error", err)
		out, usesCA = &pb.Server{Id: id, Name: srv.Name}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cas, id)
	if usesCA {
		f.cas[id] = srv.CA
	}
	return xds.Resource{Name: xds.Name{Type: xds.TypeServer, Name: id}, Body: out}
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
