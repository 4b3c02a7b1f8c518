package testfleet

import (
	"context"
	"io"
	"sync"
	"time"
)

// valve is one direction of a relay's connections.
type valve struct {
	mu      sync.Mutex // guards the rest
	flow    flow
	changed chan struct{} // closed and replaced with each change
}

// flow is how bytes pass; zero: as they come.
type flow struct {
	held bool
	most int           // bytes at once
	wait time.Duration // after each time
}

func (v *valve) set(f flow) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flow = f
	close(v.changed)
	v.changed = make(chan struct{})
}

// pass carries bytes until either end is closed or ctx ends.
func (v *valve) pass(ctx context.Context, to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			f, ok := v.open(ctx)
			if !ok {
				return
			}
			part := rest
			if f.most > 0 {
				part = rest[:min(f.most, len(rest))]
			}
			if _, err := to.Write(part); err != nil {
				return
			}
			rest = rest[len(part):]
			v.pause(ctx, f.wait)
		}
		if err != nil {
			v.open(ctx)
			return
		}
	}
}

// open waits until bytes may pass, and says how; false: ctx has ended.
func (v *valve) open(ctx context.Context) (flow, bool) {
	for {
		v.mu.Lock()
		f, changed := v.flow, v.changed
		v.mu.Unlock()
		if !f.held {
			return f, ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return f, false
		}
	}
}

// pause waits, unless the flow changes.
func (v *valve) pause(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	v.mu.Lock()
	changed := v.changed
	v.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}
