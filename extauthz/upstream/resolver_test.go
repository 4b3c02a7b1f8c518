package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPickSpreadsOverAllAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("a.test", time.Minute, "10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3", "10.0.0.2", "2001:db8::1")
		r := z.resolver(t)
		counts := map[string]int{}
		for range 400 {
			counts[pick(t, r, "a.test")]++
		}
		for _, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1"} {
			if counts[addr] != 100 {
				t.Errorf("%s %d times of 400", addr, counts[addr])
			}
		}
		if z.count("a.test") != 1 {
			t.Errorf("%d lookups", z.count("a.test"))
		}
	})
}

func TestALiteralNeedsNoLookup(t *testing.T) {
	z := newZone()
	r := z.resolver(t)
	for _, literal := range []string{"10.0.0.1", "2001:db8::1"} {
		if got := pick(t, r, literal); got != literal {
			t.Errorf("Pick(%s) = %s", literal, got)
		}
		if z.count(literal) != 0 {
			t.Errorf("%s was looked up", literal)
		}
		addr := netip.AddrPortFrom(netip.MustParseAddr(literal), 80)
		if !r.Contains(t.Context(), literal, 80, addr) || r.Contains(t.Context(), literal, 81, addr) {
			t.Errorf("Contains(%s)", literal)
		}
	}
	fails(t, r, "169.254.169.254", upstream.ErrRefused)
	fails(t, r, "::ffff:169.254.169.254", upstream.ErrRefused)
}

func TestManyFirstRequestsShareOneLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.hold = make(chan struct{})
		z.set("a.test", time.Minute, "10.0.0.1")
		r := z.resolver(t)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got, err := r.Pick(t.Context(), "a.test", 80); err != nil || got.String() != "10.0.0.1:80" {
					t.Errorf("Pick = %v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		close(z.hold)
		all.Wait()
		if z.count("a.test") != 1 {
			t.Errorf("%d lookups", z.count("a.test"))
		}
	})
}

func TestALookupOutlivesTheRequestThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.hold = make(chan struct{})
		z.set("a.test", time.Minute, "10.0.0.1")
		r := z.resolver(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Pick(ctx, "a.test", 80); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Pick = %v", err)
		}
		if r.Contains(ctx, "a.test", 80, netip.MustParseAddrPort("10.0.0.1:80")) {
			t.Error("Contains without an answer")
		}
		close(z.hold)
		if got := pick(t, r, "a.test"); got != "10.0.0.1" || z.count("a.test") != 1 {
			t.Errorf("%s after %d lookups", got, z.count("a.test"))
		}
	})
}

func TestALookupThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.hold = make(chan struct{})
		r := z.resolver(t)
		began := time.Now()
		fails(t, r, "a.test", upstream.ErrLookup)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// A name in use is looked up when its answer ends, before anybody asks.
func TestNamesInUseAreRefreshedByTTL(t *testing.T) {
	tests := []struct {
		name string
		ttl  time.Duration
		want time.Duration
	}{
		{"its TTL", 20 * time.Second, 20 * time.Second},
		{"shorter than allowed", time.Second, 5 * time.Second},
		{"zero, but known", time.Nanosecond, 5 * time.Second},
		{"longer than allowed", time.Hour, 5 * time.Minute},
		{"not known", 0, 30 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := newZone()
				z.set("a.test", tt.ttl, "10.0.0.1")
				r := z.resolver(t)
				pick(t, r, "a.test")
				z.set("a.test", tt.ttl, "10.0.0.2")
				time.Sleep(tt.want - time.Nanosecond)
				synctest.Wait()
				if got := pick(t, r, "a.test"); got != "10.0.0.1" {
					t.Errorf("before the end: %s", got)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if z.count("a.test") != 2 {
					t.Errorf("%d lookups at the end", z.count("a.test"))
				}
				if got := pick(t, r, "a.test"); got != "10.0.0.2" {
					t.Errorf("after the end: %s", got)
				}
			})
		})
	}
}

func TestTheLastGoodAnswerStaysWhileLookupsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("a.test", time.Minute, "10.0.0.1")
		r := z.resolver(t)
		pick(t, r, "a.test")
		z.fail("a.test", errors.New("server misbehaving"))
		for range 60 {
			time.Sleep(time.Minute)
			if got := pick(t, r, "a.test"); got != "10.0.0.1" {
				t.Fatalf("Pick = %s", got)
			}
		}
		failed := z.count("a.test")
		if failed < 600 || failed > 800 { // about every 5 s
			t.Errorf("%d lookups in an hour", failed)
		}
		z.set("a.test", time.Minute, "10.0.0.2")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := pick(t, r, "a.test"); got != "10.0.0.2" {
			t.Errorf("after recovery: %s", got)
		}
	})
}

func TestANameThatIsGoneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("a.test", time.Minute, "10.0.0.1")
		r := z.resolver(t)
		pick(t, r, "a.test")
		z.fail("a.test", upstream.ErrNoSuchHost)
		time.Sleep(time.Minute)
		synctest.Wait()
		fails(t, r, "a.test", upstream.ErrNoSuchHost)
		if r.Contains(t.Context(), "a.test", 80, netip.MustParseAddrPort("10.0.0.1:80")) {
			t.Error("its address is still contained")
		}
	})
}

func TestNegativeAnswersAreKeptBriefly(t *testing.T) {
	tests := []struct {
		name  string
		fault error
		want  error
	}{
		{"no such name", upstream.ErrNoSuchHost, upstream.ErrNoSuchHost},
		{"a failure", errors.New("server misbehaving"), upstream.ErrLookup},
		{"a time-out", context.DeadlineExceeded, upstream.ErrLookup},
		{"no addresses", nil, upstream.ErrNoSuchHost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := newZone()
				z.set("a.test", time.Minute)
				z.fail("a.test", tt.fault)
				r := z.resolver(t)
				for range 10 {
					fails(t, r, "a.test", tt.want)
				}
				if z.count("a.test") != 1 {
					t.Errorf("%d lookups", z.count("a.test"))
				}
				z.set("a.test", time.Minute, "10.0.0.1")
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if got := pick(t, r, "a.test"); got != "10.0.0.1" {
					t.Errorf("Pick = %s", got)
				}
			})
		})
	}
}

func TestContainsFollowsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		z.set("a.test", time.Minute, "10.0.0.1", "10.0.0.2")
		r := z.resolver(t)
		tests := []struct {
			name string
			addr string
			want bool
		}{
			{"the first", "10.0.0.1:80", true},
			{"the second", "10.0.0.2:80", true},
			{"mapped", "[::ffff:10.0.0.2]:80", true},
			{"another address", "10.0.0.3:80", false},
			{"another port", "10.0.0.1:81", false},
		}
		for _, tt := range tests {
			if got := r.Contains(t.Context(), "a.test", 80, netip.MustParseAddrPort(tt.addr)); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
		z.set("a.test", time.Minute, "10.0.0.2")
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.Contains(t.Context(), "a.test", 80, netip.MustParseAddrPort("10.0.0.1:80")) {
			t.Error("an address that left is contained")
		}
		if r.Contains(t.Context(), "gone.test", 80, netip.MustParseAddrPort("10.0.0.1:80")) {
			t.Error("a name that does not exist contains an address")
		}
	})
}

func TestLoopbackNamesPreferIPv4(t *testing.T) {
	tests := []struct {
		name  string
		addrs []string
		want  []string
	}{
		{"both", []string{"::1", "127.0.0.1"}, []string{"127.0.0.1"}},
		{"several", []string{"::1", "127.0.0.1", "127.0.0.2"}, []string{"127.0.0.1", "127.0.0.2"}},
		{"IPv6 alone", []string{"::1"}, []string{"::1"}},
		{"not only loopback", []string{"::1", "10.0.0.1"}, []string{"10.0.0.1", "::1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := newZone()
				z.set("localhost", time.Minute, tt.addrs...)
				if got := several(t, z.resolver(t), "localhost", 20); !slices.Equal(got, tt.want) {
					t.Errorf("picked %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestNewNeedsNetworks(t *testing.T) {
	if r, err := upstream.New(upstream.Config{}); err == nil || r != nil {
		t.Errorf("New = %v, %v", r, err)
	}
}

func TestManyAskWhileNamesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		for i := range 20 {
			z.set(fmt.Sprintf("n%d.test", i), 5*time.Second, "10.0.0.1", "10.0.0.2")
		}
		r := z.resolver(t, func(c *upstream.Config) { c.MaxNames = 10 })
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for i := range 200 {
					host := fmt.Sprintf("n%d.test", (worker*7+i)%20)
					if _, err := r.Pick(t.Context(), host, 80); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		all.Wait()
	})
}

func BenchmarkPick(b *testing.B) {
	z := newZone()
	z.set("a.test", time.Hour, "10.0.0.1", "10.0.0.2")
	rules := networks()
	r, err := upstream.New(upstream.Config{Networks: func() *upstream.Networks { return rules }, Lookup: z.lookup})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Pick(b.Context(), "a.test", 80); err != nil {
			b.Fatal(err)
		}
	}
}
