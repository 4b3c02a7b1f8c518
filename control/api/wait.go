package api

import (
	"context"
	"errors"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// audit writes the one line of a change, after it was committed.
func (a *api) audit(ctx context.Context, what string, args ...any) {
	a.cfg.Log.InfoContext(ctx, what, append([]any{"principal", caller(ctx)}, args...)...)
}

// applied waits until Envoy and whoever is connected run a revision.
func (a *api) applied(ctx context.Context, revision int64) Applied {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ApplyWait)
	defer cancel()
	err := a.cfg.Fleet.Applied(ctx, revision)
	if err == nil {
		return Applied{Applied: true}
	}
	a.cfg.Log.WarnContext(ctx, "change stored, not yet applied everywhere", "revision", revision, "error", err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Applied{Reason: "stored, but not everything runs it yet (waited " + a.cfg.ApplyWait.String() + "): see doctor"}
	}
	return Applied{Reason: err.Error()}
}

// confirmed waits until what a change ends is ended everywhere.
func (a *api) confirmed(ctx context.Context, change revocation.Change) (Revocation, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RevokeWait)
	defer cancel()
	result, err := a.cfg.Fleet.Confirmed(ctx, change)
	args := []any{
		"seq", change.Seq, "revision", change.Revision, "replicas", result.Replicas, "confirmed", result.Confirmed,
		"missing", result.Missing, "streams_ended", result.StreamsEnded, "duration", result.Took,
	}
	if err != nil {
		a.cfg.Log.ErrorContext(ctx, "revocation not carried out everywhere", append(args, "error", err)...)
		return Revocation{}, errUnconfirmed(result)
	}
	a.cfg.Log.InfoContext(ctx, "revocation carried out", args...)
	return revocationObject(result), nil
}

// endedBefore answers a delete of what is not there. Somebody may have deleted
// it a moment ago and still wait: this answer has to be as true as that one.
func (a *api) endedBefore(ctx context.Context, err error, what *failure) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	at, err := a.cfg.Store.Position(ctx)
	if err == nil && at.Seq > 0 {
		_, err = a.confirmed(ctx, revocation.Change{Seq: at.Seq, Asked: a.cfg.Now()})
	}
	if err != nil {
		return err
	}
	return what
}

// changed waits for the fleet after a change of settings that may take rights
// away: for Envoy, and for every replica that could go on without it.
func (a *api) changed(ctx context.Context, srv store.Server, asked time.Time) (Applied, Revocation, error) {
	what := revocation.Key{Kind: revocation.KindServer, Key: srv.ID.String()}
	result, err := a.confirmed(ctx, revocation.Change{Revision: srv.Revision, What: what, Asked: asked})
	if err != nil {
		return Applied{}, result, err
	}
	return a.applied(ctx, srv.Revision), result, nil
}
