package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
)

// ask looks host up and returns the addresses as sorted text.
func ask(t *testing.T, s *dnsServer, host string) ([]string, time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := upstream.DNS(s.dial)(ctx, host)
	var got []string
	for _, a := range answer.Addrs {
		got = append(got, a.Unmap().String())
	}
	slices.Sort(got)
	return got, answer.TTL, err
}

func TestDNSFindsAllAddressesAndTheSmallestTTL(t *testing.T) {
	s := newDNSServer(t)
	s.set("one.test", 17, "127.0.0.1")
	s.set("several.test", 60, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	s.set("zero.test", 0, "127.0.0.1")
	s.set("week.test", 604800, "127.0.0.1")
	s.alias("alias.test", "target.test", 7, 300, "127.0.0.1")
	s.alias("alias2.test", "target.test", 300, 9, "127.0.0.1")
	tests := []struct {
		host  string
		addrs []string
		ttl   time.Duration
	}{
		{"one.test", []string{"127.0.0.1"}, 17 * time.Second},
		{"several.test", []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, time.Minute},
		{"zero.test", []string{"127.0.0.1"}, time.Nanosecond},
		{"week.test", []string{"127.0.0.1"}, 7 * 24 * time.Hour},
		{"alias.test", []string{"127.0.0.1"}, 7 * time.Second},
		{"alias2.test", []string{"127.0.0.1"}, 9 * time.Second},
	}
	for _, truncate := range []bool{false, true} {
		s.do(func() { s.truncate = truncate })
		for _, tt := range tests {
			addrs, ttl, err := ask(t, s, tt.host)
			if err != nil || !slices.Equal(addrs, tt.addrs) || ttl != tt.ttl {
				t.Errorf("truncated %v: %s is %v for %v, %v; want %v for %v", truncate, tt.host, addrs, ttl, err, tt.addrs, tt.ttl)
			}
		}
	}
	if s.udp == 0 || s.tcp == 0 {
		t.Errorf("%d questions over UDP, %d over TCP", s.udp, s.tcp)
	}
}

func TestDNSTakesTheSmallerTTLOfBothFamilies(t *testing.T) {
	s := newDNSServer(t)
	s.do(func() {
		s.records["both.test."] = []dnsmessage.Resource{
			address("both.test", 50, netip.MustParseAddr("127.0.0.1")),
			address("both.test", 20, netip.MustParseAddr("::1")),
		}
	})
	addrs, ttl, err := ask(t, s, "both.test")
	if err != nil || !slices.Contains(addrs, "127.0.0.1") || ttl != 20*time.Second {
		t.Errorf("%v for %v, %v", addrs, ttl, err)
	}
}

// Without a route for a family its addresses would fail every other request.
func TestDNSLeavesOutAddressesWithoutARoute(t *testing.T) {
	s := newDNSServer(t)
	const unrouted = "fe80::1" // link-local without a zone: no kernel knows where to
	tests := []struct {
		host  string
		addrs []string
		want  []string
	}{
		{"mixed.test", []string{unrouted, "127.0.0.1"}, []string{"127.0.0.1"}},
		{"alone.test", []string{unrouted}, []string{unrouted}},
	}
	for _, tt := range tests {
		s.set(tt.host, 60, tt.addrs...)
		if addrs, _, err := ask(t, s, tt.host); err != nil || !slices.Equal(addrs, tt.want) {
			t.Errorf("%s is %v, %v; want %v", tt.host, addrs, err, tt.want)
		}
	}
}

func TestDNSFaults(t *testing.T) {
	s := newDNSServer(t)
	s.set("a.test", 60, "127.0.0.1")
	s.set("empty.test", 60)
	tests := []struct {
		name string
		host string
		code dnsmessage.RCode
		gone bool
	}{
		{"no such name", "b.test", dnsmessage.RCodeSuccess, true},
		{"a name without addresses", "empty.test", dnsmessage.RCodeSuccess, true},
		{"the server says so", "a.test", dnsmessage.RCodeNameError, true},
		{"the server fails", "a.test", dnsmessage.RCodeServerFailure, false},
		{"the server refuses", "a.test", dnsmessage.RCodeRefused, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.do(func() { s.code = tt.code })
			addrs, _, err := ask(t, s, tt.host)
			if err == nil || len(addrs) > 0 || errors.Is(err, upstream.ErrNoSuchHost) != tt.gone {
				t.Errorf("%v, %v; want no such host %v", addrs, err, tt.gone)
			}
		})
	}
}

// net.Resolver alone would call such a name gone.
func TestDNSRejectsHalfAnAnswer(t *testing.T) {
	s := newDNSServer(t)
	s.set("half.test", 60)
	for _, failing := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		s.do(func() { s.failing = failing })
		for range 20 { // A and AAAA are answered in any order
			if addrs, _, err := ask(t, s, "half.test"); err == nil || errors.Is(err, upstream.ErrNoSuchHost) {
				t.Fatalf("%v fails: %v, %v", failing, addrs, err)
			}
		}
	}
	s.set("half.test", 60, "127.0.0.1")
	if addrs, _, err := ask(t, s, "half.test"); err != nil || !slices.Equal(addrs, []string{"127.0.0.1"}) {
		t.Errorf("only AAAA fails: %v, %v", addrs, err)
	}
}

func TestDNSEndsWithItsContext(t *testing.T) {
	s := newDNSServer(t)
	s.do(func() { s.silent = true })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if answer, err := upstream.DNS(s.dial)(ctx, "a.test"); err == nil || errors.Is(err, upstream.ErrNoSuchHost) {
		t.Errorf("%v, %v", answer, err)
	}
}

func TestDNSReadsTheHostsFile(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no name server") }
	answer, err := upstream.DNS(refused)(t.Context(), "localhost")
	if err != nil || len(answer.Addrs) == 0 || answer.TTL != 0 {
		t.Errorf("localhost is %v, %v", answer, err)
	}
}

// The whole way: a name over real sockets whose address changes, whose server
// fails, and which comes back.
func TestResolverFollowsARealServer(t *testing.T) {
	s := newDNSServer(t)
	s.set("a.test", 1, "127.0.0.1")
	rules := networks()
	r, err := upstream.New(upstream.Config{
		Networks: func() *upstream.Networks { return rules },
		Lookup:   upstream.DNS(s.dial),
		MinTTL:   time.Millisecond,
		MaxTTL:   10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := pick(t, r, "a.test"); got != "127.0.0.1" {
		t.Fatalf("Pick = %s", got)
	}
	s.set("a.test", 1, "127.0.0.2")
	eventually(t, func() bool { return pick(t, r, "a.test") == "127.0.0.2" })

	s.do(func() { s.code = dnsmessage.RCodeServerFailure })
	failed := s.questions()
	eventually(t, func() bool { return s.questions() > failed+20 })
	if got := pick(t, r, "a.test"); got != "127.0.0.2" {
		t.Errorf("while the server fails: %s", got)
	}

	s.do(func() { s.code = dnsmessage.RCodeSuccess })
	s.set("a.test", 1, "127.0.0.3", "169.254.169.254")
	eventually(t, func() bool { return pick(t, r, "a.test") == "127.0.0.3" })

	s.set("a.test", 1, "169.254.169.254")
	eventually(t, func() bool {
		_, err := r.Pick(t.Context(), "a.test", 80)
		return errors.Is(err, upstream.ErrRefused)
	})
}

func (s *dnsServer) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.udp + s.tcp
}

// eventually polls until done, at most 10 s.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it never came to be")
		}
	}
}
