package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
)

func TestIdleNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("idle.test", time.Minute, "10.0.0.1")
		z.set("busy.test", time.Minute, "10.0.0.1")
		r := z.resolver(t)
		pick(t, r, "idle.test")
		for range 120 {
			pick(t, r, "busy.test")
			time.Sleep(time.Minute)
		}
		if n := z.count("idle.test"); n < 10 || n > 12 {
			t.Errorf("idle: %d lookups in 2 h", n)
		}
		if n := z.count("busy.test"); n < 119 {
			t.Errorf("busy: %d lookups in 2 h", n)
		}
		if got := pick(t, r, "idle.test"); got != "10.0.0.1" {
			t.Errorf("Pick = %s", got)
		}
	})
}

func TestNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		r := z.resolver(t, func(c *upstream.Config) { c.MaxNames = 8 })
		for i := range 100 {
			host := fmt.Sprintf("n%d.test", i)
			z.set(host, time.Minute, "10.0.0.1")
			pick(t, r, host)
			time.Sleep(time.Millisecond)
		}
		before := 0
		for i := range 100 {
			before += z.count(fmt.Sprintf("n%d.test", i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		refreshed := -before
		for i := range 100 {
			refreshed += z.count(fmt.Sprintf("n%d.test", i))
		}
		if refreshed != 8 {
			t.Errorf("%d names are kept", refreshed)
		}
		for i := 92; i < 100; i++ { // the newest: the others were unused for longer
			if n := z.count(fmt.Sprintf("n%d.test", i)); n != 2 {
				t.Errorf("n%d.test: %d lookups", i, n)
			}
		}
	})
}

func TestANameEvictedDuringItsLookupIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.hold = make(chan struct{})
		z.set("a.test", time.Minute, "10.0.0.1")
		z.set("b.test", time.Minute, "10.0.0.2")
		r := z.resolver(t, func(c *upstream.Config) { c.MaxNames = 1 })
		var both sync.WaitGroup
		for _, host := range []string{"a.test", "b.test"} {
			both.Go(func() {
				if _, err := r.Pick(t.Context(), host, 80); err != nil {
					t.Errorf("Pick(%s) = %v", host, err)
				}
			})
			synctest.Wait()
		}
		close(z.hold)
		both.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if z.count("a.test") != 1 || z.count("b.test") != 2 {
			t.Errorf("%d and %d lookups", z.count("a.test"), z.count("b.test"))
		}
	})
}

func TestLookupsAtTheSameTimeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.hold = make(chan struct{})
		r := z.resolver(t)
		var all sync.WaitGroup
		for i := range 500 {
			host := fmt.Sprintf("n%d.test", i)
			z.set(host, time.Minute, "10.0.0.1")
			all.Go(func() {
				if _, err := r.Pick(t.Context(), host, 80); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(z.hold)
		all.Wait()
		if z.most != 64 {
			t.Errorf("%d at the same time", z.most)
		}
	})
}

func TestRunEndsAllWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("a.test", time.Minute, "10.0.0.1")
		r := z.resolver(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		pick(t, r, "a.test")

		z.mu.Lock()
		z.hold = make(chan struct{})
		z.mu.Unlock()
		waiting := make(chan error, 1)
		go func() {
			_, err := r.Pick(t.Context(), "b.test", 80)
			waiting <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if err := <-waiting; !errors.Is(err, upstream.ErrClosed) {
			t.Errorf("a waiting Pick = %v", err)
		}
		fails(t, r, "a.test", upstream.ErrClosed)
		asked := z.count("a.test")
		time.Sleep(time.Hour)
		synctest.Wait()
		if z.count("a.test") != asked {
			t.Error("lookups go on after Run")
		}
		r.Close() // twice is harmless
	})
}
