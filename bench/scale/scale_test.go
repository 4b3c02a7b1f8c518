package main

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0,10,200": {0, 10, 200}, "": nil, "1,1": nil, "2,1": nil, "-1": nil, "1,x": nil} {
		got, err := numbers(text)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-parts", "revocation", "-pairs", "2", "-deletes", "7"})
	if err != nil || o.scaling || !o.revoking || o.deletes != 7 || !slices.Equal(o.pairs, []int{2}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"x"}, {"-parts", "other"}, {"-tokens", "0"}, {"-deletes", "0"}, {"-pairs", "0"}, {"-servers", "1,0"}} {
		if o, err := parse(args); err == nil {
			t.Errorf("%v was taken: %+v", args, o)
		}
	}
}

func TestShown(t *testing.T) {
	got := shown([]string{"-logs", "/secret/place", "-pairs", "1", "--logs=/secret/place", "-write", "page.md"})
	if got != "-pairs 1 -write page.md" {
		t.Errorf("%q", got)
	}
}

func TestDurations(t *testing.T) {
	var d durations
	for i := range 100 {
		d = append(d, time.Duration(100-i)*time.Millisecond)
	}
	for share, want := range map[float64]string{0: "1.00", 0.5: "50.0", 0.99: "99.0", 1: "100"} {
		if got := d.text(share); got != want {
			t.Errorf("at %v: %s, want %s", share, got, want)
		}
	}
	if got := durations(nil).at(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestEach(t *testing.T) {
	var sum atomic.Int64
	rate, err := each(t.Context(), 100, 7, func(_ context.Context, i int) error { sum.Add(int64(i)); return nil })
	if err != nil || sum.Load() != 4950 || rate <= 0 {
		t.Errorf("sum %d, rate %v, %v", sum.Load(), rate, err)
	}
	broken := errors.New("broken")
	_, err = each(t.Context(), 1_000_000, 7, func(_ context.Context, i int) error {
		if i == 50 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}
