package extauthz_test

import (
	"context"
	"log/slog"
	"sync"
)

// faults is the log of an extauthz. It keeps the error behind the newest
// request that was not decided, which Check does not tell its caller.
type faults struct {
	mu     sync.Mutex // guards newest
	newest error
}

func (f *faults) last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

func (f *faults) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "no decision" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is {
			f.newest = err
		}
		return true
	})
	return nil
}

func (*faults) Enabled(context.Context, slog.Level) bool { return true }
func (f *faults) WithAttrs([]slog.Attr) slog.Handler     { return f }
func (f *faults) WithGroup(string) slog.Handler          { return f }
