package upstream_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
)

// zone is a Lookup whose answers a test changes.
type zone struct {
	mu      sync.Mutex // guards all fields: lookups run at the same time
	answers map[string]upstream.Answer
	faults  map[string]error
	asked   map[string]int
	hold    chan struct{} // when set, lookups wait for it
	now     int           // lookups that run
	most    int           // that ever ran at once
}

func newZone() *zone {
	return &zone{answers: map[string]upstream.Answer{}, faults: map[string]error{}, asked: map[string]int{}}
}

func (z *zone) set(host string, ttl time.Duration, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.faults, host)
	answer := upstream.Answer{TTL: ttl}
	for _, a := range addrs {
		answer.Addrs = append(answer.Addrs, netip.MustParseAddr(a))
	}
	z.answers[host] = answer
}

func (z *zone) fail(host string, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.faults[host] = err
}

func (z *zone) count(host string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[host]
}

func (z *zone) lookup(ctx context.Context, host string) (upstream.Answer, error) {
	z.mu.Lock()
	z.asked[host]++
	z.now++
	z.most = max(z.most, z.now)
	hold := z.hold
	z.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.now--
	if ctx.Err() != nil {
		return upstream.Answer{}, ctx.Err()
	}
	if err := z.faults[host]; err != nil {
		return upstream.Answer{}, err
	}
	answer, known := z.answers[host]
	if !known {
		return upstream.Answer{}, upstream.ErrNoSuchHost
	}
	return answer, nil
}

// resolver returns one that is closed at the end of the test.
func (z *zone) resolver(t *testing.T, edit ...func(*upstream.Config)) *upstream.Resolver {
	t.Helper()
	rules := networks()
	c := upstream.Config{Networks: func() *upstream.Networks { return rules }, Lookup: z.lookup}
	for _, e := range edit {
		e(&c)
	}
	r, err := upstream.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func pick(t *testing.T, r *upstream.Resolver, host string) string {
	t.Helper()
	got, err := r.Pick(t.Context(), host, 80)
	if err != nil {
		t.Fatal(err)
	}
	return got.Addr().String()
}

// several picks n times and returns the different addresses, sorted.
func several(t *testing.T, r *upstream.Resolver, host string, n int) []string {
	t.Helper()
	var got []string
	for range n {
		got = append(got, pick(t, r, host))
	}
	slices.Sort(got)
	return slices.Compact(got)
}

func fails(t *testing.T, r *upstream.Resolver, host string, want error) {
	t.Helper()
	if got, err := r.Pick(t.Context(), host, 80); !errors.Is(err, want) || got.IsValid() {
		t.Errorf("Pick(%s) = %v, %v; want %v", host, got, err, want)
	}
}
