package api

import (
	"context"
	"errors"
	"time"
)

// audit writes the one line of a change, after it was committed.
func (a *api) audit(ctx context.Context, what string, args ...any) {
	a.cfg.Log.InfoContext(ctx, what, append([]any{"principal", caller(ctx)}, args...)...)
}

// applied waits for the fleet as long as a create or an update does.
func (a *api) applied(ctx context.Context, revision int64) Applied {
	return a.appliedWithin(ctx, revision, a.cfg.ApplyWait)
}

func (a *api) appliedWithin(ctx context.Context, revision int64, wait time.Duration) Applied {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := a.cfg.Fleet.Applied(ctx, revision)
	if err == nil {
		return Applied{Applied: true}
	}
	a.cfg.Log.WarnContext(ctx, "change stored, not yet applied everywhere", "revision", revision, "error", err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Applied{Reason: "stored, but not everything runs it yet (waited " + wait.String() + "): see doctor"}
	}
	return Applied{Reason: err.Error()}
}

// runningRevision counts the replicas that run revision; nil when that cannot be known.
func (a *api) runningRevision(ctx context.Context, revision int64) *Revocation {
	status, err := a.cfg.Status(ctx)
	if err != nil {
		a.cfg.Log.WarnContext(ctx, "replicas cannot be counted", "error", err)
		return nil
	}
	out := &Revocation{Replicas: len(status.Replicas)}
	for _, replica := range status.Replicas {
		if replica.AppliedRevision >= revision {
			out.ReplicasConfirmed++
		} else {
			out.Missing = append(out.Missing, replica.Name)
		}
	}
	return out
}

// confirmed waits until what seq ends is ended everywhere.
func (a *api) confirmed(ctx context.Context, seq int64) Revocation {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RevokeWait)
	defer cancel()
	result := a.cfg.Fleet.Confirmed(ctx, seq)
	a.cfg.Log.InfoContext(ctx, "revocation carried out", "seq", seq, "replicas", result.Replicas,
		"confirmed", result.Confirmed, "missing", result.Missing, "streams_ended", result.StreamsEnded, "duration", result.Took)
	return revocationObject(result)
}
