package extauthz

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/policies"
)

// A live stream goes on only as long as the policy would open it (contract
// section 3, point 6). What it was opened by is asked again whenever the
// answer may be another one: when the policy changes, when what policies see
// of its server changes, and every minute when the policy reads the time.

// standingMost is how long all live streams together may take to be decided
// again: 100,000 take 2 s on two idle cores. Those that are not decided by then
// end. A replica that takes longer to apply what was pushed loses its lease, and
// all streams with it.
const standingMost = 5 * time.Second

// standingAgain is how often streams are decided again by a policy that reads
// the time.
const standingAgain = time.Minute

var errUndecidable = errors.New("what the policy reads of the request was too long to be carried along")

// policyKey stands for the streams that a change of policy ends, in what is
// confirmed to control.
var policyKey = revocation.Key{Kind: revocation.KindPolicy, Key: "policy"}

// opens asks again what Check asked, for a live stream that begins, unless
// nothing has changed since.
func (s *Server) opens(ctx context.Context, snap *Snapshot, by opened) error {
	if by.question == "" {
		return nil
	}
	q, err := parseQuestion(by.question)
	if err != nil {
		return err
	}
	if srv := snap.servers.find(by.server); srv != nil && q.answeredBy(snap.policy, srv) {
		return nil
	}
	return s.askAgain(ctx, snap, by.server, q)
}

// stands asks whether what opened a live stream may still open it. The error is
// a denial, or says why nobody can tell.
func (s *Server) stands(ctx context.Context, snap *Snapshot, by opened) error {
	if by.question == "" {
		return nil
	}
	q, err := parseQuestion(by.question)
	if err != nil {
		return err
	}
	return s.askAgain(ctx, snap, by.server, q)
}

func (s *Server) askAgain(ctx context.Context, snap *Snapshot, id identity.ServerID, q *question) error {
	srv := snap.servers.find(id)
	switch {
	case srv == nil:
		return deny(reasonUnknown)
	case q.withheld == withheldCalls:
		return errUndecidable
	}
	for _, in := range q.inputs(srv, s.revoked.Now()) {
		answer, err := decideAgain(ctx, snap.policy, q, &in)
		if err != nil {
			return err
		}
		if !answer.Allow {
			return policyDenial(&answer).late(&answer, in.Request.Method == http.MethodPost && !srv.literalDenials)
		}
		if srv.holds(toolOf(in.Call)) {
			return deny(reasonTool)
		}
	}
	return ctx.Err()
}

// decideAgain is Decide, or an error where it takes arguments that were not
// carried along.
func decideAgain(ctx context.Context, policy *policies.Policy, q *question, in *policies.Input) (policies.Decision, error) {
	if q.withheld != withheldArguments {
		return policy.Decide(ctx, in)
	}
	answer, isKnown, err := policy.DecideWithout(ctx, in)
	if err == nil && !isKnown {
		err = errUndecidable
	}
	return answer, err
}

// endStreams ends what may not go on by the next snapshot, which is in use
// already, and counts it by what ended it.
func (s *Server) endStreams(next *swap) map[revocation.Key]int64 {
	cut := map[revocation.Key]int64{}
	var ended, seen []revocation.Key
	for _, id := range next.ended {
		ended = append(ended, serverKey(id))
	}
	for i, streams := range s.streams.end(ended...) {
		cut[ended[i]] = streams
	}
	if next.policy {
		cut[policyKey] = s.streams.endThese(s.fallen(s.streams.every()))
		return cut
	}
	for _, id := range next.seen {
		seen = append(seen, serverKey(id))
	}
	fallen := map[revocation.Key][]*liveStream{}
	for _, st := range s.fallen(s.streams.of(seen...)) {
		key := serverKey(st.opened.server)
		fallen[key] = append(fallen[key], st)
	}
	for key, streams := range fallen {
		cut[key] += s.streams.endThese(streams)
	}
	return cut
}

// fallen are those of the live streams that may not go on. Each is decided by
// the newest snapshot: one that registers later does so itself (guard.watch).
func (s *Server) fallen(live []*liveStream) []*liveStream {
	snap := s.snapshot.Load()
	if len(live) == 0 || !snap.Ready() {
		return live
	}
	ctx, cancel := context.WithTimeout(context.Background(), standingMost)
	defer cancel()
	out := make([]*liveStream, len(live)) // nil: it may go on
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(live)) {
		working.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(live)); i = next.Add(1) - 1 {
				if ctx.Err() != nil || !s.stillStands(ctx, snap, live[i].opened) {
					out[i] = live[i]
				}
			}
		})
	}
	working.Wait()
	return slices.DeleteFunc(out, func(st *liveStream) bool { return st == nil })
}

// stillStands is stands; a panic is no.
func (s *Server) stillStands(ctx context.Context, snap *Snapshot, by opened) (does bool) {
	defer func() {
		if fault := recover(); fault != nil {
			does = false
			_ = s.panicked(fault)
		}
	}()
	err := s.stands(ctx, snap, by)
	if errors.Is(err, policies.ErrDeadline) { // a busy machine, or a slow policy: once more
		err = s.stands(ctx, snap, by)
	}
	return err == nil
}

// runStanding does what time brings, until ctx ends.
func (s *Server) runStanding(ctx context.Context) error {
	tick := time.NewTicker(standingAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.decideByTime()
			s.limits.tidy(s.revoked.Instant().Boot)
		case <-ctx.Done():
			return nil
		}
	}
}

// decideByTime ends the streams that a policy lets nobody open any more at this
// time.
func (s *Server) decideByTime() {
	if snap := s.snapshot.Load(); snap.Ready() && snap.policy.Reads().Time {
		s.streams.endThese(s.fallen(s.streams.every()))
	}
}
