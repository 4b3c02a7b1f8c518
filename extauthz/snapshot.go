package extauthz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/session"
	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/mask"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/token"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// Snapshot is everything that control pushed, at one revision. It is
// immutable; a request loads it once. A Snapshot without gateway settings or
// keys decides nothing (Ready).
type Snapshot struct {
	Revision int64
	gateway  *gateway
	keys     *keys
	policy   *policies.Policy
	servers  serverShards
	loaded   bool // every server has come once
}

// gateway is pb.Gateway, checked.
type gateway struct {
	base          origin
	hosts         map[string]bool
	networks      *upstream.Networks
	session       time.Duration
	streams       int
	recordsNeeded bool
	policy        policyHeaders
}

type keys struct {
	tokenMAC token.MACKey
	sealer   *session.Sealer
}

// server is pb.Server, checked.
type server struct {
	id              identity.ServerID
	seen            policies.Server // by policies
	seenAs          uint64          // number of seen: no other record in no other process has it
	record          atomic.Pointer[record.Server]
	mask            *mask.Mask // of recorded argument values; nil: none is recorded
	enabled         bool
	mcp, rpc        *target
	legacy, modern  bool
	origins         map[string]bool
	maxBody         int
	hash            revocation.Hash // names it in the revoked set
	callLimit       time.Duration
	batches         bool
	literalDenials  bool
	headersRevision int64
	stopped         int64           // revision at which it was last disabled
	denyChanged     bool            // changed tools may not be used
	changed         map[string]bool // they, as far as control knows
	listed          unchangedLists
}

// target is where a server's requests go.
type target struct {
	url     upstream.URL
	cluster string
}

// serverShards is an immutable map that is cheap to change: one of 256 parts
// is copied.
type serverShards [256]map[identity.ServerID]*server

func (s *serverShards) find(id identity.ServerID) *server { return s[id[len(id)-1]][id] }

func (s *serverShards) set(id identity.ServerID, srv *server, owned *[256]bool) {
	shard := id[len(id)-1]
	if !owned[shard] {
		s[shard] = maps.Clone(s[shard])
		owned[shard] = true
	}
	if s[shard] == nil {
		s[shard] = map[identity.ServerID]*server{}
	}
	if srv == nil {
		delete(s[shard], id)
		return
	}
	s[shard][id] = srv
}

// Ready reports whether requests can be decided.
func (s *Snapshot) Ready() bool {
	return s != nil && s.gateway != nil && s.keys != nil && s.policy != nil && s.loaded
}

// Servers is the number of servers known.
func (s *Snapshot) Servers() int {
	n := 0
	for _, shard := range s.servers {
		n += len(shard)
	}
	return n
}

// change is one resource of a pushed update; exactly one field is set.
type change struct {
	gateway *pb.Gateway
	keys    *pb.Keys
	policy  *pb.Policy
	server  *pb.Server
	removed string // id of a server that is gone
}

// with builds the next snapshot whole. Settings, keys or a policy that are wrong
// leave everything as it is (no next); a server that is wrong accepts nothing in
// the next snapshot, and the error names it.
func (s *Snapshot) with(changes []change) (next *swap, refused error) {
	var err error
	next = &swap{Snapshot: &Snapshot{}}
	if s != nil {
		*next.Snapshot = *s
	}
	var owned [256]bool
	if !next.loaded {
		// Nobody reads the servers yet (Ready). They come a thousand at a time,
		// and copying those that have come each time would make a start with n
		// of them take n squared.
		for i := range owned {
			owned[i] = true
		}
	}
	for _, c := range changes {
		switch {
		case c.gateway != nil:
			next.gateway, err = parseGateway(c.gateway)
		case c.keys != nil:
			next.keys, err = parseKeys(c.keys)
		case c.policy != nil:
			err = next.decideBy(c.policy)
		case c.server != nil:
			srv, wrong := parseServer(c.server)
			if srv == nil {
				return nil, wrong
			}
			refused = errors.Join(refused, wrong)
			next.replace(srv, &owned)
		default:
			var id identity.ServerID
			if id, err = identity.ParseServerID(c.removed); err != nil {
				err = fmt.Errorf("removing server %q: %w", c.removed, err)
				break
			}
			next.servers.set(id, nil, &owned)
		}
		if err != nil {
			return nil, err
		}
	}
	return next, refused
}

func parseGateway(in *pb.Gateway) (*gateway, error) {
	base, err := url.Parse(in.GetBaseUrl())
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("gateway settings: base URL %q is not an origin", in.GetBaseUrl())
	}
	out := &gateway{
		base:          newOrigin(base),
		hosts:         map[string]bool{},
		session:       time.Duration(in.GetSessionSeconds()) * time.Second,
		streams:       int(in.GetStreamsPerCredential()),
		recordsNeeded: in.GetDecisionLogRequired(),
	}
	for _, host := range in.GetHosts() {
		out.hosts[strings.ToLower(host)] = true
	}
	var allowed []netip.Prefix
	for _, text := range in.GetUpstreamNetworks() {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("gateway settings: upstream network %q: %w", text, err)
		}
		allowed = append(allowed, prefix)
	}
	var own []netip.AddrPort
	for _, text := range in.GetOwnListeners() {
		listener, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("gateway settings: own listener %q: %w", text, err)
		}
		own = append(own, listener)
	}
	out.networks = upstream.NewNetworks(allowed, own)
	out.policy, err = newPolicyHeaders(in.GetPolicyRequestHeaders(), in.GetPolicyUpstreamHeaders())
	return out, err
}

func parseKeys(in *pb.Keys) (*keys, error) {
	out := &keys{}
	if len(in.GetTokenMac()) != len(out.tokenMAC) {
		return nil, fmt.Errorf("keys: the token MAC key has %d bytes instead of %d", len(in.GetTokenMac()), len(out.tokenMAC))
	}
	copy(out.tokenMAC[:], in.GetTokenMac())
	var sealing []session.Key
	for _, k := range in.GetSessionKeys() {
		key := session.Key{ID: k.GetId()}
		if len(k.GetKey()) != len(key.Secret) {
			return nil, fmt.Errorf("keys: session key %d has %d bytes instead of %d", k.GetId(), len(k.GetKey()), len(key.Secret))
		}
		copy(key.Secret[:], k.GetKey())
		sealing = append(sealing, key)
	}
	var err error
	if out.sealer, err = session.New(sealing); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return out, nil
}

// parsePolicy compiles the bundle that decides.
func parsePolicy(in *pb.Policy) (*policies.Policy, error) {
	bundle := policies.Bundle{Files: in.GetFiles()}
	if bundle.Revision() != in.GetRevision() {
		return nil, fmt.Errorf("policy %s: what came is %s", in.GetRevision(), bundle.Revision())
	}
	policy, err := policies.Compile(context.Background(), bundle)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", in.GetRevision(), err)
	}
	return policy, nil
}

// parseServer checks a server. One that is wrong comes back disabled, with the
// error; without an id there is none.
func parseServer(in *pb.Server) (*server, error) {
	id, err := identity.ParseServerID(in.GetId())
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", in.GetId(), err)
	}
	out, err := parseServerAs(id, in)
	if err != nil {
		return &server{id: id}, fmt.Errorf("server %s: %w", id, err)
	}
	return out, nil
}

func parseServerAs(id identity.ServerID, in *pb.Server) (*server, error) {
	var err error
	out := &server{
		id: id, enabled: in.GetEnabled(),
		legacy: in.GetLegacy(), modern: in.GetModern(),
		maxBody:   min(int(in.GetMaxBody()), bodyCap),
		hash:      serverKey(id).Hash(),
		callLimit: time.Duration(in.GetCallLimitSeconds()) * time.Second,
		batches:   in.GetBatches(), literalDenials: in.GetLiteralDenials(),
		headersRevision: in.GetHeadersRevision(), stopped: in.GetStoppedRevision(),
		mask: maskOf(in.GetRecordArguments()),
	}
	out.seen.ID, out.seen.Name, out.seen.Labels = id, in.GetName(), in.GetLabels()
	out.seen.Grants, out.seen.Data = in.GetGrants(), in.GetPolicyData()
	if out.denyChanged = in.GetDenyChangedTools(); len(in.GetChangedTools()) > 0 {
		out.changed = make(map[string]bool, len(in.GetChangedTools()))
		for _, name := range in.GetChangedTools() {
			out.changed[name] = true
		}
	}
	if out.maxBody <= 0 || out.callLimit <= 0 {
		return nil, fmt.Errorf("a limit is missing: body %d bytes, call %v", out.maxBody, out.callLimit)
	}
	if allowed := in.GetAllowedOrigins(); len(allowed) > 0 { // most servers have none, and there may be 100,000
		out.origins = make(map[string]bool, len(allowed))
		for _, text := range allowed {
			out.origins[text] = true
		}
	}
	if out.mcp, err = parseTarget(in.GetMcp()); err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	if out.rpc, err = parseTarget(in.GetRpc()); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	return out, nil
}

func parseTarget(in *pb.Upstream) (*target, error) {
	if in == nil {
		return nil, nil
	}
	parsed, err := upstream.ParseURL(in.GetUrl())
	if err != nil {
		return nil, err
	}
	if in.GetCluster() == "" {
		return nil, fmt.Errorf("%s has no cluster", in.GetUrl())
	}
	return &target{url: parsed, cluster: in.GetCluster()}, nil
}
