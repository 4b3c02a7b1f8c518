package policies

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Deadline is how long one question may take. An answer after it is none.
const Deadline = 50 * time.Millisecond

// patience is how long a question may take that a person has explained.
const patience = 2 * time.Second

// ErrDeadline says that a policy did not answer within Deadline.
var ErrDeadline = errors.New("the policy did not answer within 50 ms")

// deadline ends an evaluation in time (topdown.Cancel): OPA asks it at each
// step, and some of its functions while they write.
type deadline struct {
	over  atomic.Bool
	timer *time.Timer
	at    time.Time
}

func newDeadline(after time.Duration) *deadline {
	d := &deadline{at: time.Now().Add(after)}
	d.timer = time.AfterFunc(after, d.Cancel)
	return d
}

// Cancel ends the evaluation at its next step.
func (d *deadline) Cancel() { d.over.Store(true) }

// Cancelled reports whether the evaluation has to stop.
func (d *deadline) Cancelled() bool { return d.over.Load() }

// stop says whether the evaluation ended too late, whatever it said.
func (d *deadline) stop(ctx context.Context) error {
	d.timer.Stop()
	if err := ctx.Err(); err != nil {
		return err
	}
	if time.Now().After(d.at) {
		return ErrDeadline
	}
	return nil
}
