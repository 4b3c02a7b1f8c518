package storetest

import (
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// testLeases: a control learns the longest lease that any earlier one gave,
// however often controls came and went, until one says that all are over.
func testLeases(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	note := func(lease, want time.Duration) {
		t.Helper()
		if before, err := s.NoteLease(t.Context(), lease); err != nil || before != want {
			t.Errorf("noting %v answered %v, %v; want %v", lease, before, err, want)
		}
	}
	note(time.Minute, 0)
	note(15*time.Second, time.Minute)
	note(15*time.Second, time.Minute)
	if err := s.SettleLease(t.Context(), 15*time.Second); err != nil {
		t.Fatal(err)
	}
	note(5*time.Second, 15*time.Second)
	note(30*time.Second, 15*time.Second)
	note(5*time.Second, 30*time.Second)
}
