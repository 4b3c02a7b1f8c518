package extauthz

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/policies"
)

func by(rate float64, burst int, dimensions ...string) policies.Limit {
	return policies.Limit{By: dimensions, Rate: rate, Burst: burst}
}

// In any span of time no more passes than the burst and what has come since.
func TestLimitsLetThroughNoMoreThanTheySay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l limits
		server := identity.NewServerID()
		limit := by(rapid.Float64Range(0.01, 50).Draw(t, "rate"), rapid.IntRange(1, 5).Draw(t, "burst"), "principal")
		var passed []time.Duration // when, one for each token
		now := time.Hour
		for range rapid.IntRange(1, 60).Draw(t, "asks") {
			now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "later")) * time.Millisecond
			var all []wanted
			for range rapid.IntRange(1, 3).Draw(t, "messages") {
				all = want(all, limit, [16]byte{1}, "")
			}
			if rapid.Bool().Draw(t, "tidy") {
				l.tidy(now)
			}
			wait := l.take(server, [16]byte{1}, all, now)
			if wait < 0 || wait%time.Second != 0 {
				t.Fatalf("wait %v", wait)
			}
			if wait > 0 {
				fits := all[0].tokens <= limit.Burst
				if got := l.take(server, [16]byte{1}, all, now+wait); fits && got != 0 {
					t.Fatalf("after the %v that were named it waits %v more", wait, got)
				}
				if !fits {
					continue
				}
				now += wait
			}
			for range all[0].tokens {
				passed = append(passed, now)
			}
		}
		for i, from := range passed {
			for j, to := range passed[i:] {
				if most := float64(limit.Burst) + (to-from).Seconds()*limit.Rate; float64(j+1) > most+1e-6 {
					t.Fatalf("%d passed in %v, at most %v may", j+1, to-from, most)
				}
			}
		}
	})
}

// What a limit is by has a bucket of its own; each server has its own always.
func TestLimitsAreBy(t *testing.T) {
	one, other := identity.NewServerID(), identity.NewServerID()
	other[15] = one[15] // in one shard
	me, you := [16]byte{1}, [16]byte{2}
	for _, tt := range []struct {
		by        []string
		principal bool // another principal has another bucket
		tool      bool
	}{
		{[]string{"server"}, false, false},
		{[]string{"principal"}, true, false},
		{[]string{"tool"}, false, true},
		{[]string{"principal", "tool"}, true, true},
		{[]string{"principal", "server", "tool"}, true, true},
	} {
		t.Run(fmt.Sprint(tt.by), func(t *testing.T) {
			var l limits
			passes := func(server identity.ServerID, who [16]byte, tool string) bool {
				return l.take(server, who, want(nil, by(1, 1, tt.by...), who, tool), 0) == 0
			}
			for call := range 2 {
				if got := passes(one, me, "a"); got != (call < 1) {
					t.Fatalf("call %d passes: %v", call, got)
				}
			}
			if got := passes(one, you, "a"); got != tt.principal {
				t.Errorf("another principal: %v, want %v", got, tt.principal)
			}
			if got := passes(one, me, "b"); got != tt.tool {
				t.Errorf("another tool: %v, want %v", got, tt.tool)
			}
			if !passes(other, me, "a") {
				t.Error("another server shares the bucket")
			}
		})
	}
	var l limits
	for _, limit := range []policies.Limit{by(1, 1, "server"), by(2, 1, "server"), by(1, 2, "server"), by(1, 1, "tool")} {
		if l.take(one, me, want(nil, limit, me, ""), 0) != 0 {
			t.Errorf("%+v begins with another one's bucket", limit)
		}
	}
}

// A request takes of all its buckets or of none.
func TestLimitsTakeAllOrNothing(t *testing.T) {
	var l limits
	server, me := identity.NewServerID(), [16]byte{1}
	narrow, wide := by(1, 1, "tool"), by(0.5, 2, "server")
	both := func(tools ...string) (all []wanted) {
		for _, tool := range tools {
			all = want(want(all, narrow, me, tool), wide, me, tool)
		}
		return all
	}
	if l.take(server, me, both("a"), 0) != 0 {
		t.Fatal("the first is refused")
	}
	for range 10 {
		if got := l.take(server, me, both("a"), 0); got != time.Second {
			t.Fatalf("wait %v", got)
		}
		if got := l.take(server, me, both("b", "c"), 0); got != 2*time.Second {
			t.Fatalf("two of the one that is left: wait %v", got)
		}
	}
	if l.take(server, me, both("b"), 0) != 0 {
		t.Error("what was refused has taken something")
	}
	if got := l.take(server, me, both("x", "y", "z"), 1000*time.Hour); got != 2*time.Second {
		t.Errorf("more at once than there ever is: wait %v", got)
	}
	if got := l.take(server, me, want(want(nil, by(1e-12, 1, "tool"), me, "t"), by(1e-12, 1, "tool"), me, "t"), 0); got != waitMost {
		t.Errorf("wait %v", got)
	}
}

// Nobody gets a fresh bucket by filling the table, and who fills it fills only
// its own part.
func TestLimitsForgetNothing(t *testing.T) {
	var l limits
	server, me, you := identity.NewServerID(), [16]byte{1}, [16]byte{2}
	limit := by(0.001, 2, "principal", "tool")
	passes := func(who [16]byte, tool string, now time.Duration) bool {
		return l.take(server, who, want(nil, limit, who, tool), now) == 0
	}
	for call := range 3 {
		if got := passes(me, "dear", 0); got != (call < 2) {
			t.Fatalf("call %d passes: %v", call, got)
		}
	}
	made := 0
	for i := range 2 * bucketsPerMaker {
		if passes(me, fmt.Sprint(i), 0) {
			made++
		}
	}
	if made != bucketsPerMaker-1 {
		t.Errorf("one principal made %d buckets more", made)
	}
	if passes(me, "dear", 0) {
		t.Error("a spent bucket was forgotten")
	}
	if !passes(you, "dear", 0) {
		t.Error("another principal has no room")
	}
	if got := l.count.Load(); got != bucketsPerMaker+1 {
		t.Errorf("%d buckets are counted", got)
	}
	later := 1500 * time.Second // one token more: those of one call are full again
	if !passes(me, "new", later) {
		t.Error("there is no room when buckets are full again")
	}
	for call := range 2 {
		if got := passes(me, "dear", later); got != (call < 1) {
			t.Errorf("call %d passes: %v; after 1500 s there is one token, at 0.001 per second", call, got)
		}
	}
	l.tidy(1000 * time.Hour)
	if got := l.count.Load(); got != 0 {
		t.Errorf("%d buckets are left that say nothing", got)
	}
}
