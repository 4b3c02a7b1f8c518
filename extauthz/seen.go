package extauthz

import (
	"context"
	"log/slog"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// seenFile keeps how far this machine has followed the revocation log. The disk
// is waited for here and nowhere else: a lease must not be lost to it.
type seenFile struct {
	path   string
	slog   *slog.Logger
	newest chan revocation.Position // holds one
}

// seenAgain is how long after a write that failed the next one is tried.
const seenAgain = time.Second

func newSeenFile(path string, log *slog.Logger) *seenFile {
	return &seenFile{path: path, slog: log, newest: make(chan revocation.Position, 1)}
}

// note has a position kept, in place of one that still waits. It is called by
// one goroutine.
func (f *seenFile) note(at revocation.Position) {
	select {
	case <-f.newest:
	default:
	}
	f.newest <- at
}

// run writes until ctx ends.
func (f *seenFile) run(ctx context.Context) error {
	for {
		select {
		case at := <-f.newest:
			f.keep(ctx, at)
		case <-ctx.Done():
			return nil
		}
	}
}

// keep writes a position, or a newer one, until the disk has it.
func (f *seenFile) keep(ctx context.Context, at revocation.Position) {
	for {
		err := revocation.WriteSeen(f.path, at)
		if err == nil {
			return
		}
		f.slog.Error("an older copy of the database may not be noticed here", "error", err)
		select {
		case at = <-f.newest:
		case <-time.After(seenAgain):
		case <-ctx.Done():
			return
		}
	}
}
