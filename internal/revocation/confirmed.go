package revocation

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// wait is a change that control waits for.
type wait struct {
	change Change
	begun  time.Time
	open   map[string]time.Time // replica -> when it can no longer accept without the change
	result Result
}

// Confirmed waits until every replica that was listed after a change was
// committed has confirmed it, or can no longer accept anything because its
// lease has run out. It is called after the commit and, for settings, after the
// push. A replica that refuses the settings is not waited for: the error is a
// *RefusedError, and it may still accept until its lease is over. When ctx ends first, the replicas that are still open count as missing,
// and may still accept: the error is the context's. Any other error says that
// the log is not the one that the change was committed to.
func (h *Hub) Confirmed(ctx context.Context, change Change) (Result, error) {
	if at, err := h.position(ctx); err != nil || at.Seq < change.Seq {
		return Result{}, cmp.Or(err, ErrLogReplaced)
	}
	h.Wake()
	w := h.list(change)
	for {
		refusals, others := h.cfg.Refusals(change.Revision)
		changed, next := h.settle(w)
		h.excuse(w, refusals)
		if len(w.open) == 0 {
			return w.result, w.result.refusal()
		}
		timer := time.NewTimer(next.Sub(h.cfg.Now()))
		select {
		case <-changed:
		case <-others:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			w.result.Missing = slices.Sorted(maps.Keys(w.open))
			return w.result, ctx.Err()
		}
		timer.Stop()
	}
}

// list begins to wait: for everyone who is listed now, after the commit. Who is
// listed later gets its set and settings later than that.
func (h *Hub) list(change Change) *wait {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &wait{change: change, begun: h.cfg.Now(), open: map[string]time.Time{}}
	for name, r := range h.replicas {
		if h.gone(r) {
			continue
		}
		// A lease that is given from now on needs the entry: it was read after
		// the commit. It needs the settings when they are due.
		until := r.leaseUntil
		if change.Seq == 0 {
			until = later(until, w.begun.Add(h.cfg.Grace+h.cfg.Lease))
		}
		w.open[name] = until
	}
	w.result.Replicas = len(w.open)
	return w
}

// settle moves replicas that confirmed, or can accept nothing, from open into
// the result. It returns what announces the next change, and when the next
// lease is over.
func (h *Hub) settle(w *wait) (changed <-chan struct{}, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, until := range w.open {
		r := h.replicas[name]
		over := r == nil || h.gone(r) || !h.cfg.Now().Before(until)
		switch {
		case r != nil && r.refuses(w.change) && (r.revision >= w.change.Revision || over):
			w.result.Confirmed++
			w.result.StreamsEnded += r.cutFor(w.change)
			delete(w.open, name)
		case over:
			w.result.Missing = append(w.result.Missing, name)
			delete(w.open, name)
		default:
			if r.links == 0 && r.leaseUntil.Before(until) {
				until = r.leaseUntil
			}
			if next.IsZero() || until.Before(next) {
				next = until
			}
		}
	}
	slices.Sort(w.result.Missing)
	w.result.Took = h.cfg.Now().Sub(cmp.Or(w.change.Asked, w.begun))
	return h.changed, next
}

// excuse moves replicas that do not take the settings from open into the result.
// What an entry ends they refuse all the same, once they have confirmed it.
func (h *Hub) excuse(w *wait, refusals map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range w.open {
		reason, refused := refusals[name]
		r := h.replicas[name]
		switch {
		case !refused || w.change.Revision == 0:
			continue
		case w.change.Seq == 0:
			w.result.Refused = append(w.result.Refused, Refusal{name, reason})
		case r != nil && r.refuses(w.change):
			w.result.Confirmed++
			w.result.StreamsEnded += r.cutFor(w.change)
		default:
			continue
		}
		delete(w.open, name)
	}
	slices.SortFunc(w.result.Refused, func(a, b Refusal) int { return strings.Compare(a.Replica, b.Replica) })
}

// refusal is the error of a change that was refused; nil: it was not.
func (r *Result) refusal() error {
	if len(r.Refused) == 0 {
		return nil
	}
	return &RefusedError{r.Refused}
}

// refuses reports whether the replica has confirmed what a change ends: an
// entry alone does it, whatever the settings say. Hub.mu is held.
func (r *replica) refuses(c Change) bool {
	if c.Seq > 0 {
		return r.confirmed >= c.Seq
	}
	return r.revision >= c.Revision
}

// cutFor is how many live streams the replica has cut for a change, and not for
// an earlier one of the same key. Hub.mu is held.
func (r *replica) cutFor(c Change) (streams int64) {
	for _, e := range r.ended {
		if e.key == c.What && (c.Seq > 0 && e.seq >= c.Seq || c.Revision > 0 && e.revision >= c.Revision) {
			streams += e.streams
		}
	}
	return streams
}
