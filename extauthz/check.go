package extauthz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/extauthz/credential"
	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/extauthz/resolve"
	"github.com/arbiter-gateway/arbiter/extauthz/session"
	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/policies"
)

// Faults of the gateway itself. They become 503, never a decision.
var (
	errMalformedCheck = errors.New("the check request is not one that this gateway's Envoy sends")
	errNoLease        = errors.New("control is not heard: nothing can be decided")
	errStaleCheck     = errors.New("the decision lies too far back")
	errBusy           = errors.New("too many request bodies wait for a decision")
	errChanging       = errors.New("what decides changes again and again")
)

// decision is a request's way through Check. The zero decision denies.
type decision struct {
	started time.Time
	began   revocation.Memory // when, for what is judged later
	snap    *Snapshot
	req     *request
	srv     *server
	who     resolve.Credential
	call    call
	session *session.Session  // of a legacy request other than the opener
	reused  bool              // an id of it was that of a list, whose answer may come instead
	input   policies.Input    // what is asked of each message, without its call
	calls   []policies.Call   // those that the policy is asked about
	heard   heard             // what it said, for the record
	headers []policies.Header // that it sets for the upstream
	limited []wanted          // of what it limits
	route   route
	denied  *denial
	status  int // of the denial's answer, and its body
	body    []byte
	allowed bool
}

// Check answers one authorization request from Envoy.
func (s *Server) Check(ctx context.Context, in wire.Message) (wire.Message, error) {
	d := decision{started: s.now()}
	if !s.bodies.take(len(in)) {
		return nil, s.fail(&d, errBusy)
	}
	defer s.bodies.release(len(in))
	if err := s.decide(ctx, &d, in); err != nil {
		refused, ok := errors.AsType[*denial](err)
		if !ok {
			return nil, s.fail(&d, err)
		}
		d.denied = refused
	}
	if d.denied != nil {
		d.status, d.body = deniedBody(&d)
	}
	if err := s.record(&d); err != nil { // 7.
		return nil, s.fail(&d, err)
	}
	out, err := respond(&d) // 8.
	if err != nil {
		return nil, s.fail(&d, err)
	}
	return out, nil
}

// decidedMost is how often a request is decided, when each time something else
// decides by the time that it is.
const decidedMost = 4

// decide runs steps 1 to 6 of docs/architecture.md, "Request", and allows only
// what the newest policy allows of the server as it is now: steps 3 and 6 wait
// for others, and in the meantime a change may have been confirmed. What is
// denied by an older one stays denied.
func (s *Server) decide(ctx context.Context, d *decision, in wire.Message) error {
	for range decidedMost {
		d.again()
		if err := s.decideOnce(ctx, d, in); err != nil {
			return err
		}
		if ctx.Err() != nil { // a decision made too late is none
			return ctx.Err()
		}
		newest, err := s.live(d.srv.id, d.who.Hash, d.who.Expires) // time has passed since step 3
		if err != nil {
			return err
		}
		if !s.revoked.Known().Holds(d.who.Memory, s.revoked.Instant(), revocation.AnswerAge(revocation.CacheAge)) {
			return errStaleCheck
		}
		if !d.decidedBy(newest) {
			continue
		}
		if err := s.takeLimits(d); err != nil {
			return err
		}
		d.allowed = true // the one line that allows
		return nil
	}
	return errChanging
}

// again forgets what was decided, but not how long it took.
func (d *decision) again() {
	d.input, d.calls, d.headers, d.limited = policies.Input{}, nil, nil, nil
	d.heard = heard{took: d.heard.took}
}

// decidedBy reports that a snapshot decides as that of this request: its policy,
// what that may see and set, the server's grants and data, its held tools.
func (d *decision) decidedBy(snap *Snapshot) bool {
	return snap.gateway == d.snap.gateway && snap.policy == d.snap.policy &&
		snap.servers.find(d.srv.id).seenAs == d.srv.seenAs
}

// decideOnce runs the steps on the newest snapshot. Each returns nil, a denial,
// or an error that is the gateway's own fault.
func (s *Server) decideOnce(ctx context.Context, d *decision, in wire.Message) (err error) {
	if d.snap = s.snapshot.Load(); !d.snap.Ready() || !s.revoked.Alive() {
		return errNoLease
	}
	d.began = s.revoked.Known().Remember(s.revoked.Instant())
	if d.req, err = parseRequest(ctx, in, d.snap.gateway.policy.seen); err != nil { // 1.
		return err
	}
	if err = admit(d.snap, d.req); err != nil {
		return err
	}
	presented, err := extract(d.req) // 2.
	if err != nil {
		return err
	}
	if d.who, d.srv, err = s.principal(ctx, d.snap, d.req.server, presented); err != nil { // 3.
		return err
	}
	if d.call, err = readCall(d.srv, d.req); err != nil { // 4.
		return err
	}
	if d.session, err = s.openSession(d); err != nil { // 5.
		return err
	}
	if err = s.authorize(ctx, d); err != nil { // 6.
		return err
	}
	d.reused = s.listIDs.notes(d, s.revoked.Instant().Boot)
	d.route, err = s.chooseRoute(ctx, d)
	return err
}

// extract is step 2. Only access tokens are known to this release.
func extract(req *request) (credential.Presented, error) {
	presented, err := credential.Extract(req.header.authorization)
	if err != nil {
		return presented, &denial{reason: reasonCredential, detail: err.Error()}
	}
	if presented.Kind == credential.None {
		return presented, deny(reasonNoCredential)
	}
	return presented, nil
}

// principal is step 3: who presented this, and may still. The binding of a
// credential to its server is here; no policy can widen it.
func (s *Server) principal(ctx context.Context, snap *Snapshot, id identity.ServerID, presented credential.Presented) (resolve.Credential, *server, error) {
	digest, err := presented.Access(snap.keys.tokenMAC)
	if err != nil {
		return resolve.Credential{}, nil, &denial{reason: reasonCredential, detail: err.Error()}
	}
	who, err := s.tokens.Token(ctx, digest)
	if errors.Is(err, resolve.ErrUnknown) {
		return resolve.Credential{}, nil, deny(reasonUnknown)
	}
	if err != nil {
		return resolve.Credential{}, nil, err
	}
	if who.Principal.Server != id {
		return who, nil, deny(reasonOtherServer)
	}
	if err := s.judgeLive(snap, id, who.Hash, who.Expires); err != nil {
		return who, nil, err
	}
	return who, snap.servers.find(id), nil
}

// live asks it of now: the newest settings, the lease, the revoked set.
func (s *Server) live(server identity.ServerID, credential revocation.Hash, expires time.Time) (*Snapshot, error) {
	snap := s.snapshot.Load()
	if !snap.Ready() || !s.revoked.Alive() {
		return nil, errNoLease
	}
	return snap, s.judgeLive(snap, server, credential, expires)
}

// judgeLive asks what has to hold at every use of a credential, whatever a
// cache remembers of it.
func (s *Server) judgeLive(snap *Snapshot, server identity.ServerID, credential revocation.Hash, expires time.Time) error {
	revoked, srv := s.revoked.Known(), snap.servers.find(server)
	switch {
	case revoked.Has(credential), srv != nil && revoked.Has(srv.hash):
		return deny(reasonRevoked)
	case !expires.IsZero() && !s.revoked.Now().Before(expires):
		return deny(reasonExpired)
	case srv == nil:
		return deny(reasonUnknown)
	case !srv.enabled:
		return deny(reasonServerDisabled)
	}
	return nil
}

// openSession is step 5: the session of a legacy request that is not the
// opener. Forged, expired and foreign ones look alike to the caller.
func (s *Server) openSession(d *decision) (*session.Session, error) {
	if d.req.transport == jsonrpc.RPC || d.call.modern || d.call.opener {
		return nil, nil
	}
	if len(d.req.header.sessionID) == 0 {
		return nil, deny(reasonNoSession).addressed(d.call)
	}
	opened, err := d.snap.keys.sealer.Open(d.req.header.sessionID[0], s.revoked.Now())
	if err == nil {
		err = opened.BelongsTo(d.srv.id, d.who.Principal)
	}
	switch {
	case err == nil:
	case errors.Is(err, session.ErrExpired):
		return nil, deny(reasonSessionExpired)
	case errors.Is(err, session.ErrOtherServer):
		return nil, deny(reasonSessionServer)
	case errors.Is(err, session.ErrOtherPrincipal):
		return nil, deny(reasonSessionOther)
	default:
		return nil, deny(reasonSession)
	}
	if d.req.method == "DELETE" && !opened.HasUpstream {
		return nil, &denial{reason: reasonNoUpSession, allow: "POST, GET"}
	}
	if d.call.batch && opened.Version != versionBatches {
		return nil, &denial{
			reason: reasonBody, detail: jsonrpc.ReasonBatchRefused, code: codeInvalidRequest,
			text: "a batch is only for sessions that asked for revision " + versionBatches,
		}
	}
	return &opened, nil
}

// addressed sends the denial to the single request of a call.
func (d *denial) addressed(c call) *denial {
	d.id = c.id()
	return d
}

// route is where an allowed request goes.
type route struct {
	target  *target
	address netip.AddrPort
	headers []upstreamHeader // of the server's own
	resumes bool             // Last-Event-ID may pass
}

// chooseRoute names the upstream's address: the session's, while the server
// record still resolves to it, or the next one.
func (s *Server) chooseRoute(ctx context.Context, d *decision) (route, error) {
	out := route{target: d.srv.mcp}
	if d.req.transport == jsonrpc.RPC {
		out.target = d.srv.rpc
	}
	host, port := out.target.url.Host(), out.target.url.Port()
	var err error
	if sess := d.session; sess != nil && s.addresses.Contains(ctx, host, port, sess.Addr) {
		out.address, out.resumes = sess.Addr, sess.HasUpstream
	} else if out.address, err = s.addresses.Pick(ctx, host, port); err != nil {
		if ctx.Err() != nil {
			return route{}, ctx.Err()
		}
		s.cfg.Slog.Warn("no address for an upstream", "request_id", d.req.id, "server", d.srv.id, "error", err)
		return route{}, deny(reasonUpstream).addressed(d.call)
	}
	if out.headers, err = s.headers.of(ctx, d.srv); err != nil {
		return route{}, err
	}
	return out, nil
}

// fail turns the gateway's own fault into an error: Envoy answers 503 and
// nothing passes.
func (s *Server) fail(d *decision, err error) error {
	s.recordFault(d, err)
	id := ""
	if d.req != nil {
		id = d.req.id
	}
	level := slog.LevelError
	quiet := errors.Is(err, errNoLease) || errors.Is(err, errBusy) // said once by what caused it, counted each time
	if quiet || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		level = slog.LevelDebug
	}
	s.cfg.Slog.Log(context.Background(), level, "no decision", "request_id", id, "error", err)
	return status.Error(codes.Unavailable, fmt.Sprintf("no decision for request %s", id))
}
