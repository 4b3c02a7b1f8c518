package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func testRevocations(t *testing.T, engine New) {
	open, clock := engine(t), newClock()
	s := opened(t, open, store.Config{Now: clock.now})
	start, err := s.Position(t.Context())
	wantErr(t, err, nil)
	if start.Database == "" || start.Epoch < 1 || start.Seq != 0 {
		t.Fatalf("position of a new log: %+v", start)
	}
	slow, err := s.CreateServer(t.Context(), store.Server{Name: "slow", Limits: store.Limits{CallLimit: time.Hour}}, nil)
	wantErr(t, err, nil)
	srv := created(t, s, "a")
	var want []revocation.Entry
	for i, server := range []store.Server{srv, slow, srv, srv, srv} {
		e, err := s.DeleteToken(t.Context(), server.ID, issued(t, s, server.ID, fmt.Sprint(i)).ID)
		wantErr(t, err, nil)
		want = append(want, e)
		clock.advance(time.Minute)
	}
	wantEqual(t, "life of a slow server's entry", want[1].Until.Sub(want[0].Until), time.Minute+50*time.Minute)
	for _, tt := range []struct {
		since int64
		limit int
		want  []revocation.Entry
	}{{0, 0, want}, {0, 2, want[:2]}, {2, 2, want[2:4]}, {4, 100, want[4:]}, {5, 100, nil}, {99, 100, nil}, {-1, -1, want}} {
		got, err := s.RevocationsSince(t.Context(), tt.since, tt.limit)
		wantErr(t, err, nil)
		wantEqual(t, fmt.Sprint("since ", tt.since), got, tt.want)
	}

	dropped := func(before time.Time, n, oldest int64, left ...revocation.Entry) {
		t.Helper()
		got, err := s.DropRevocations(t.Context(), before)
		wantErr(t, err, nil)
		wantEqual(t, "dropped", got, n)
		gotOldest, err := s.OldestRevocation(t.Context())
		wantErr(t, err, nil)
		wantEqual(t, "oldest", gotOldest, oldest)
		list, err := s.RevocationsSince(t.Context(), 0, 0)
		wantErr(t, err, nil)
		wantEqual(t, "left", list, left)
		wantEqual(t, "seq", seq(t, s), int64(5))
	}
	dropped(clock.now().Add(time.Hour), 0, 0, want...) // none has passed, whatever the caller says
	clock.advance(13 * time.Minute)
	dropped(want[2].Until, 2, 3, want[1], want[3], want[4])
	clock.advance(2 * time.Hour)
	dropped(want[0].Until, 0, 3, want[1], want[3], want[4])
	dropped(clock.now(), 3, 5)

	again := opened(t, open, store.Config{Now: clock.now})
	at, err := again.Position(t.Context())
	wantErr(t, err, nil)
	wantEqual(t, "position after opening again", at, revocation.Position{Database: start.Database, Epoch: start.Epoch, Seq: 5})
	e, err := again.DeleteServer(t.Context(), srv.ID)
	wantErr(t, err, nil)
	wantEqual(t, "seq goes on", e.Seq, int64(6))
}

func testChanges(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{KeepChanges: 3})
	since := func(from int64, limit int, wantError error, want ...store.Change) {
		t.Helper()
		got, err := s.ChangesSince(t.Context(), from, limit)
		wantErr(t, err, wantError)
		wantEqual(t, fmt.Sprint("since ", from), got, want)
	}
	wantEqual(t, "first revision", revision(t, s), int64(0))
	since(0, 10, nil)
	since(1, 10, store.ErrGap) // a reader ahead of a restored database
	a := created(t, s, "a")
	b := created(t, s, "b")
	_, err := s.UpdateServer(t.Context(), a.ID, func(srv *store.Server) error { srv.Enabled = false; return nil }, nil)
	wantErr(t, err, nil)
	of := func(revision int64, srv store.Server) store.Change {
		return store.Change{Revision: revision, Kind: "server", Key: srv.ID.String()}
	}
	list := []store.Change{of(1, a), of(2, b), of(3, a)}
	since(0, 0, nil, list...)
	since(0, 1, nil, list[0])
	since(2, 9, nil, list[2])
	since(3, 9, nil)
	_, err = s.DeleteServer(t.Context(), b.ID)
	wantErr(t, err, nil)
	wantEqual(t, "revision", revision(t, s), int64(4))
	since(0, 10, store.ErrGap)
	since(0, 1, store.ErrGap)
	since(1, 1, nil, list[1])
	since(3, 9, nil, of(4, b))
	since(5, 9, store.ErrGap)
	since(-1, 9, store.ErrGap)
}

func testKeys(t *testing.T, engine New) {
	open := engine(t)
	s := opened(t, open, store.Config{})
	first, err := s.Keys(t.Context())
	wantErr(t, err, nil)
	if len(first.Sessions) == 0 || first.Sessions[0].ID == 0 || first.TokenMAC == first.Sessions[0].Key || first.TokenMAC == [32]byte{} {
		t.Fatal("keys are missing, or one and the same")
	}
	changes, err := s.ChangesSince(t.Context(), 0, 0)
	wantErr(t, err, nil)
	wantEqual(t, "changes", changes, []store.Change{{Revision: 1, Kind: "keys"}})
	for _, s := range []*store.Store{s, opened(t, open, store.Config{})} {
		again, err := s.Keys(t.Context())
		wantErr(t, err, nil)
		wantEqual(t, "keys", again.Sessions[0].Key, first.Sessions[0].Key)
		wantEqual(t, "token key", again.TokenMAC, first.TokenMAC)
		wantEqual(t, "revision", revision(t, s), int64(1))
	}
	marshalled, err := json.Marshal(map[string]any{"keys": first, "one": first.Sessions[0]})
	wantErr(t, err, nil)
	shown := fmt.Sprintf("%v %+v %#v %s %s", first, &first, first.Sessions, first.Sessions[0], marshalled)
	if strings.Count(shown, "redacted") != 6 {
		t.Fatalf("keys are printed as %s", shown)
	}
}

func testNotices(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	srv := created(t, s, "a")
	one, two := s.Changed(), s.Changed()
	noticed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for _, tt := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"what was before", func() error { return nil }, true},
		{"nothing", func() error { return nil }, false},
		{"token made", func() error { issued(t, s, srv.ID, "t"); return nil }, false},
		{"token used", func() error { return s.TouchTokens(t.Context(), map[string]time.Time{"x": time.Now()}) }, false},
		{"token deleted", func() error {
			_, err := s.DeleteToken(t.Context(), srv.ID, issued(t, s, srv.ID, "t2").ID)
			return err
		}, true},
		{"two servers made", func() error { created(t, s, "b"); created(t, s, "c"); return nil }, true},
		{"server refused", func() error {
			_, err := s.CreateServer(t.Context(), store.Server{Name: "b"}, nil)
			wantErr(t, err, store.ErrNameTaken)
			return nil
		}, false},
		{"keys made", func() error { _, err := s.Keys(t.Context()); return err }, true},
		{"keys read", func() error { _, err := s.Keys(t.Context()); return err }, false},
		{"server changed", func() error {
			_, err := s.UpdateServer(t.Context(), srv.ID, func(*store.Server) error { return nil }, nil)
			return err
		}, true},
		{"server deleted", func() error { _, err := s.DeleteServer(t.Context(), srv.ID); return err }, true},
		{"checked", func() error { return s.Check(t.Context()) }, false},
	} {
		wantErr(t, tt.do(), nil)
		for _, c := range []<-chan struct{}{one, two} {
			if got := noticed(c); got != tt.want {
				t.Errorf("%s: noticed %v, want %v", tt.name, got, tt.want)
			}
			if noticed(c) {
				t.Errorf("%s: noticed twice", tt.name)
			}
		}
	}
}
