package resolve_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/extauthz/resolve"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// control answers Resolve by a function and counts.
type control struct {
	pb.ControlClient
	mu     sync.Mutex // guards asked
	asked  int
	answer func(n int, digest token.Digest) (*pb.ResolveResponse, error)
}

func (c *control) Resolve(_ context.Context, in *pb.ResolveRequest, _ ...grpc.CallOption) (*pb.ResolveResponse, error) {
	c.mu.Lock()
	c.asked++
	n := c.asked
	c.mu.Unlock()
	return c.answer(n, token.Digest(in.GetDigest()))
}

func (c *control) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

var server = identity.NewServerID()

func found(id string, seq int64) *pb.ResolveResponse {
	return &pb.ResolveResponse{
		TokenId: id, Name: "ci", ServerId: server.String(), Scopes: []string{"a"}, Narrowed: true,
		Database: "d", Epoch: 1, Seq: seq, ExpiresUnix: 1_900_000_000,
	}
}

func newResolver(t *testing.T, c *control, applied int64) *resolve.Resolver {
	t.Helper()
	return resolverOf(t, c, &replica{known: revocation.Known{Set: &revocation.Set{}, At: revocation.Position{Database: "d", Epoch: 1, Seq: applied}}})
}

// replica is what the resolver asks of the replica that it belongs to.
type replica struct {
	mu    sync.Mutex // guards the rest
	known revocation.Known
	now   time.Duration
}

func (r *replica) Known() *revocation.Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.known
	return &known
}

func (r *replica) Clock() revocation.Instant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return revocation.Instant{Boot: r.now, Wall: time.Unix(0, int64(r.now))}
}

func (r *replica) edit(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func resolverOf(t *testing.T, c *control, of *replica) *resolve.Resolver {
	t.Helper()
	r, err := resolve.New(resolve.Config{Control: c, Known: of.Known, Clock: of.Clock, Entries: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func digest(text string) token.Digest { return token.DigestOf(text) }

func TestTokenIsResolvedAndKept(t *testing.T) {
	c := &control{answer: func(int, token.Digest) (*pb.ResolveResponse, error) { return found("t1", 5), nil }}
	r := newResolver(t, c, 5)
	want := resolve.Credential{
		ID: "t1", Scopes: []string{"a"}, Narrowed: true, Expires: time.Unix(1_900_000_000, 0),
		Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "t1", Server: server, Name: "ci"},
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // the cache takes a new entry a moment later
		got, err := r.Token(t.Context(), digest("one"))
		if err != nil || got.ID != want.ID || got.Principal != want.Principal || !got.Expires.Equal(want.Expires) || !got.Narrowed {
			t.Fatalf("got %+v, %v", got, err)
		}
		before := c.count()
		if _, err := r.Token(t.Context(), digest("one")); err == nil && c.count() == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it is asked every time")
		}
	}
}

// Two tokens whose digests begin alike share the cache's key, and nothing else.
func TestTokensThatBeginAlikeAreKeptApart(t *testing.T) {
	one := digest("one")
	two := one
	two[31] ^= 1
	if binary.BigEndian.Uint64(one[:]) != binary.BigEndian.Uint64(two[:]) {
		t.Fatal("the digests do not collide")
	}
	c := &control{answer: func(_ int, d token.Digest) (*pb.ResolveResponse, error) {
		if d == one {
			return found("one", 0), nil
		}
		return nil, status.Error(codes.NotFound, "")
	}}
	r := newResolver(t, c, 0)
	for range 100 {
		if got, err := r.Token(t.Context(), one); err != nil || got.ID != "one" {
			t.Fatalf("the first: %+v, %v", got, err)
		}
		if got, err := r.Token(t.Context(), two); !errors.Is(err, resolve.ErrUnknown) {
			t.Fatalf("the second resolves to %+v, %v", got, err)
		}
	}
}

func TestFaultsAreNotAnswers(t *testing.T) {
	for _, row := range []struct {
		name    string
		answer  func(n int, _ token.Digest) (*pb.ResolveResponse, error)
		unknown bool
		ok      bool
		asked   int
	}{
		{"unknown", func(int, token.Digest) (*pb.ResolveResponse, error) { return nil, status.Error(codes.NotFound, "") }, true, false, 1},
		{"control away", func(int, token.Digest) (*pb.ResolveResponse, error) { return nil, status.Error(codes.Unavailable, "") }, false, false, 1},
		{"older than what is applied", func(int, token.Digest) (*pb.ResolveResponse, error) { return found("t", 6), nil }, false, false, 3},
		{"of an earlier epoch", func(int, token.Digest) (*pb.ResolveResponse, error) {
			got := found("t", 9)
			got.Epoch = 0
			return got, nil
		}, false, false, 3},
		{"of another database", func(int, token.Digest) (*pb.ResolveResponse, error) {
			got := found("t", 9)
			got.Database = "e"
			return got, nil
		}, false, false, 3},
		{"older once", func(n int, _ token.Digest) (*pb.ResolveResponse, error) { return found("t", int64(5+n)), nil }, false, true, 2},
		{"no server", func(int, token.Digest) (*pb.ResolveResponse, error) {
			return &pb.ResolveResponse{TokenId: "t", Database: "d", Epoch: 1, Seq: 9}, nil
		}, false, false, 1},
		{"no id", func(int, token.Digest) (*pb.ResolveResponse, error) {
			return &pb.ResolveResponse{ServerId: server.String(), Database: "d", Epoch: 1, Seq: 9}, nil
		}, false, false, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &control{answer: row.answer}
			_, err := newResolver(t, c, 7).Token(t.Context(), digest("x"))
			if (err == nil) != row.ok || errors.Is(err, resolve.ErrUnknown) != row.unknown {
				t.Errorf("error %v", err)
			}
			if c.count() != row.asked {
				t.Errorf("asked %d times, want %d", c.count(), row.asked)
			}
		})
	}
}

func TestOneLookupForManyAndNoneForWhoLeaves(t *testing.T) {
	hold := make(chan struct{})
	c := &control{answer: func(int, token.Digest) (*pb.ResolveResponse, error) { <-hold; return found("t1", 0), nil }}
	r := newResolver(t, c, 0)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := r.Token(ctx, digest("one")); left <- err }()
	for c.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got, err := r.Token(t.Context(), digest("one")); err != nil || got.ID != "t1" {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left was told %v", err)
	}
	time.Sleep(20 * time.Millisecond) // the twenty wait by now, or ask the cache later
	close(hold)
	all.Wait()
	if c.count() > 2 {
		t.Errorf("asked %d times", c.count())
	}
}

// What was remembered is asked for anew when it is too old, by a clock that runs
// on while the machine sleeps, and when the knowledge by which it could be
// judged began anew meanwhile.
func TestWhatIsRememberedIsForgotten(t *testing.T) {
	for name, change := range map[string]func(*replica){
		"too old":        func(r *replica) { r.now += revocation.CacheAge + 1 },
		"new generation": func(r *replica) { r.known.Generation++ },
	} {
		t.Run(name, func(t *testing.T) {
			c := &control{answer: func(int, token.Digest) (*pb.ResolveResponse, error) { return found("t1", 5), nil }}
			of := &replica{known: revocation.Known{Set: &revocation.Set{}, At: revocation.Position{Database: "d", Epoch: 1, Seq: 5}}}
			r := resolverOf(t, c, of)
			ask := func() (asked bool) {
				before := c.count()
				if _, err := r.Token(t.Context(), digest("one")); err != nil {
					t.Fatal(err)
				}
				return c.count() != before
			}
			for deadline := time.Now().Add(10 * time.Second); ask(); {
				if time.Now().After(deadline) {
					t.Fatal("it is asked every time")
				}
			}
			of.edit(func() { change(of) })
			if !ask() {
				t.Error("it is still remembered")
			}
		})
	}
}
