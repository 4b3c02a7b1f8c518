package extauthz_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// setClock is this machine's clocks, moved as somebody who sets the time of
// day, or lets the machine sleep, would move them.
type setClock struct {
	mu         sync.Mutex // guards the rest
	boot, wall time.Duration
}

func (c *setClock) read() revocation.Instant {
	now := revocation.SystemClock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return revocation.Instant{Boot: now.Boot + c.boot, Wall: now.Wall.Add(c.wall)}
}

func (c *setClock) step(boot, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot, c.wall = c.boot+boot, c.wall+wall
}

// A lease does not outlive a clock that was set, or a machine that slept: what
// comes in that moment is not decided, what streams is cut, and only another
// answer of control's makes it good, without a word of it.
func TestClockStepEndsTheLease(t *testing.T) {
	for _, row := range []struct {
		name       string
		boot, wall time.Duration
	}{
		{"the time of day is set forward", 0, time.Hour},
		{"the time of day is set back", 0, -time.Hour},
		{"the machine slept", time.Hour, time.Hour},
		{"the machine slept, its time of day stood still", time.Hour, 0},
		{"set forward by a second", 0, time.Second},
		{"set back by a second", 0, -time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			clock, srv := &setClock{}, newServer()
			f := newFixtureAt(t, clock.read, srv)
			_, value := f.token(srv.GetId())
			live := f.listening(t, srv, value)
			call := rpcCall(srv.GetId(), value, toolsList)
			f.mustCheck(call)
			clock.step(row.boot, row.wall)
			if _, err := f.check(call); status.Code(err) != codes.Unavailable {
				t.Errorf("Check in that moment: %v, want none", err)
			}
			if got := live.recv().GetImmediateResponse().GetDetails(); got != "credential_ended" {
				t.Errorf("the stream got %q, want its cut", got)
			}
			live.finish()
			f.eventually("another pong renews it", func() bool { _, err := f.check(call); return err == nil })
			f.listening(t, srv, value).finish()
		})
	}
}

// A clock that is set back does not bring a lease to life that it has ended:
// control may have stopped waiting for it meanwhile.
func TestClockStepBothWaysWithoutControl(t *testing.T) {
	clock, srv := &setClock{}, newServer()
	f := newFixtureAt(t, clock.read, srv)
	_, value := f.token(srv.GetId())
	call := rpcCall(srv.GetId(), value, toolsList)
	f.mustCheck(call)
	f.silence()
	f.mustCheck(call) // the lease runs on
	clock.step(0, time.Hour)
	if _, err := f.check(call); status.Code(err) != codes.Unavailable {
		t.Errorf("set forward: %v", err)
	}
	clock.step(0, -time.Hour)
	if _, err := f.check(call); status.Code(err) != codes.Unavailable {
		t.Errorf("set back again: %v", err)
	}
}

// A token ends when control says so, whatever time of day the replica has.
func TestTokensEndByControlsClock(t *testing.T) {
	for _, row := range []struct {
		name string
		wall time.Duration
		ends time.Duration // from now, by control
		want int
	}{
		{"the replica is an hour ahead", time.Hour, 30 * time.Minute, 0},
		{"the replica is an hour ahead, and it has ended", time.Hour, -time.Second, 401},
		{"the replica is an hour behind", -time.Hour, -30 * time.Minute, 401},
		{"the replica is an hour behind, and it has not", -time.Hour, time.Minute, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			clock, srv := &setClock{wall: row.wall}, newServer()
			f := newFixtureAt(t, clock.read, srv)
			_, value := f.token(srv.GetId())
			f.expire(value, time.Now().Add(row.ends))
			got, body := outcome(f.mustCheck(rpcCall(srv.GetId(), value, toolsList)))
			if got != row.want {
				t.Errorf("status %d %s, want %d (0: allowed)", got, body, row.want)
			}
		})
	}
}

// A time of day that is set while a token is used moves its end in neither
// direction.
func TestClockStepDoesNotMoveExpiry(t *testing.T) {
	for _, wall := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		clock, srv := &setClock{}, newServer()
		f := newFixtureAt(t, clock.read, srv)
		_, living := f.token(srv.GetId())
		f.expire(living, time.Now().Add(time.Hour))
		_, ended := f.token(srv.GetId())
		f.expire(ended, time.Now().Add(-time.Hour))
		clock.step(0, wall)
		f.eventually("a lease by the clock as it is now", func() bool { return f.server.Ready() == nil })
		if got, body := outcome(f.mustCheck(rpcCall(srv.GetId(), living, toolsList))); got != 0 {
			t.Errorf("set by %v: the living token got %d %s", wall, got, body)
		}
		if got, _ := outcome(f.mustCheck(rpcCall(srv.GetId(), ended, toolsList))); got != 401 {
			t.Errorf("set by %v: the ended token got %d", wall, got)
		}
	}
}

// listening is a GET stream of a session of its own, open at Guard.
func (f *fixture) listening(t *testing.T, srv *pb.Server, value string) *guarded {
	t.Helper()
	guard := f.dial()
	session := guard.initialize(t, mcpCall(srv.GetId(), value, initialize), "up")
	get := request{method: "GET", path: "/servers/" + srv.GetId() + "/mcp", header: [][2]string{
		{"authorization", "Bearer " + value}, {"accept", "text/event-stream"}, {"mcp-session-id", session},
	}}
	g := guard.answer(t, get, false, ":status", "200", "content-type", "text/event-stream")
	if out := g.recv(); out.GetResponseHeaders() == nil {
		t.Fatalf("the stream did not open: %v", out)
	}
	return g
}
