package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// each runs do for 0 to n-1 on some workers, and returns how many it did per
// second.
func each(ctx context.Context, n, workers int, do func(ctx context.Context, i int) error) (rate float64, err error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	next := make(chan int)
	group.Go(func() error {
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		group.Go(func() error {
			for i := range next {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

// timed is how long do takes.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// until repeats a call until it is answered rightly, and returns when that was.
func until(ctx context.Context, every time.Duration, call func(context.Context) error) (time.Time, error) {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := call(ctx)
		if err == nil {
			return time.Now(), nil
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("no right answer within %v: %w", patience, err)
		}
	}
}

// durations are many measurements of one thing.
type durations []time.Duration

// at is the value that a share of them does not exceed, the nearest rank.
func (d durations) at(share float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

func (d durations) text(share float64) string { return millis(d.at(share)) }

func (d durations) most() string { return millis(d.at(1)) }

func millis(d time.Duration) string {
	switch ms := float64(d.Microseconds()) / 1000; {
	case ms < 10:
		return fmt.Sprintf("%.2f", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.0f", ms)
	}
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }
