package revocation

import (
	"testing"
	"time"
)

func instant(boot, wall time.Duration) Instant {
	return Instant{Boot: time.Hour + boot, Wall: bigBang.Add(wall)}
}

func TestLeaseEnds(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name string
		at   Instant
		held bool
	}{
		{"at its start", instant(0, 0), true},
		{"just before its end", instant(10*s-1, 10*s-1), true},
		{"at its end", instant(10*s, 10*s), false},
		{"the wall clock runs ahead a little", instant(9600*time.Millisecond, 10*s), false},
		{"CLOCK_BOOTTIME runs ahead a little", instant(10*s, 9600*time.Millisecond), false},
		{"slewed", instant(5*s, 5*s+jumpMost), true},
		{"the wall clock was set forward", instant(s, 2*s), false},
		{"the wall clock was set back", instant(s, -s), false},
		{"the wall clock was set back by an hour", instant(9*s, 9*s-time.Hour), false},
		{"the machine was frozen, with its clock", instant(0, 9*s), false},
		{"CLOCK_BOOTTIME ran on alone", instant(9*s, 0), false},
		{"no clock", Instant{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &lease{begun: instant(0, 0), length: 10 * s}
			if l.held(tt.at) != tt.held {
				t.Errorf("held: %v, want %v", !tt.held, tt.held)
			}
			if l.held(instant(s, s)) != tt.held {
				t.Error("a lease that was over came back to life, or one that held is over")
			}
		})
	}
	if (*lease)(nil).held(instant(0, 0)) {
		t.Error("no lease is held")
	}
	unclocked := &lease{length: 10 * s}
	if unclocked.held(Instant{}) {
		t.Error("a lease is held without a clock")
	}
}

func TestSystemClockRuns(t *testing.T) {
	first := SystemClock()
	before := time.Now().Round(0)
	for SystemClock().Boot <= first.Boot {
		if time.Since(before) > 10*time.Second {
			t.Fatal("CLOCK_BOOTTIME stands still")
		}
	}
	second := SystemClock()
	if elapsed, agree := second.since(first); elapsed <= 0 || !agree {
		t.Errorf("elapsed %v, agree %v", elapsed, agree)
	}
	if d := first.Wall.Sub(before).Abs(); d > time.Minute {
		t.Errorf("the wall clock is %v off", d)
	}
}

// Envoy must have ended the streams of a frozen extauthz before control stops
// waiting for it.
func TestMarginCoversTheKeepalive(t *testing.T) {
	for lease := LeaseLeast; lease <= LeaseMost; lease += time.Second {
		interval, timeout := Keepalive(lease)
		margin := Margin(lease)
		if interval <= 0 || timeout <= 0 || 3*(interval+timeout) >= lease || margin <= interval+timeout || 2*margin >= lease {
			t.Errorf("lease %v: keepalive %v + %v, margin %v", lease, interval, timeout, margin)
		}
	}
}

func TestEntriesOutliveWhatTheyEnd(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute, time.Hour, CallMost} {
		if Life(limit) < max(CacheAge+checkMost, AnswerAge(limit))+LeaseMost {
			t.Errorf("call limit %v: an entry leaves after %v", limit, Life(limit))
		}
	}
}

func TestPositions(t *testing.T) {
	at := Position{"a", 2, 10}
	for _, tt := range []struct {
		p                    Position
		behind, covers, same bool
	}{
		{Position{"a", 2, 9}, true, false, true},
		{Position{"a", 2, 10}, false, true, true},
		{Position{"a", 2, 11}, false, true, true},
		{Position{"a", 1, 99}, true, false, false},
		{Position{"a", 3, 1}, false, false, false},
		{Position{"b", 2, 9}, false, false, false},
		{Position{"b", 2, 99}, false, false, false},
		{Position{}, false, false, false},
	} {
		if tt.p.Behind(at) != tt.behind || tt.p.Covers(at) != tt.covers || tt.p.SameLog(at) != tt.same {
			t.Errorf("%v against %v: behind %v, covers %v, same log %v", tt.p, at, tt.p.Behind(at), tt.p.Covers(at), tt.p.SameLog(at))
		}
	}
}

func TestKnown(t *testing.T) {
	known := &Known{Set: &Set{}, At: Position{"a", 1, 5}, Generation: 3}
	if known.Answers(Position{"a", 1, 4}) || known.Answers(Position{"a", 2, 9}) || known.Answers(Position{"b", 1, 9}) {
		t.Error("an answer is used that was read before what is applied, or of another log")
	}
	if !known.Answers(known.At) {
		t.Error("an answer that was read at the same entry is refused")
	}
	memory := known.Remember(instant(0, 0))
	for _, tt := range []struct {
		name  string
		known *Known
		at    Instant
		holds bool
	}{
		{"at once", known, instant(0, 0), true},
		{"as old as it may be", known, instant(time.Minute, 0), true},
		{"too old", known, instant(time.Minute+1, 0), false},
		{"too old, whatever the wall clock says", known, instant(time.Minute+1, -time.Hour), false},
		{"of a clock that began anew", known, instant(-1, 0), false},
		{"another generation", &Known{Generation: 4}, instant(0, 0), false},
		{"with more entries", &Known{At: Position{"a", 1, 9}, Generation: 3}, instant(0, 0), true},
	} {
		if tt.known.Holds(memory, tt.at, time.Minute) != tt.holds {
			t.Errorf("%s: holds %v", tt.name, !tt.holds)
		}
	}
}
