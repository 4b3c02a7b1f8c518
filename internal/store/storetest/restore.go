package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func testRestore(t *testing.T, engine New) {
	t.Run("reached", func(t *testing.T) { testReached(t, engine) })
	t.Run("numbers", func(t *testing.T) { testRestoredNumbers(t, engine) })
	t.Run("ends what was ended", func(t *testing.T) { testEndAgain(t, engine) })
	t.Run("ends every token", func(t *testing.T) { testEndAll(t, engine) })
	t.Run("all or nothing", func(t *testing.T) { testRestoreRefused(t, engine) })
	t.Run("beside deletes", func(t *testing.T) { testRestoreBesideDeletes(t, engine) })
}

func reached(t *testing.T, s *store.Store) store.Reached {
	t.Helper()
	at, err := s.Reached(t.Context())
	wantErr(t, err, nil)
	return at
}

// ahead is how far a database was that now is older by these numbers.
func ahead(at store.Reached, epochs, entries, revisions int64) store.Reached {
	at.Epoch += epochs
	at.Seq += entries
	at.Revision += revisions
	return at
}

func testReached(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	srv := created(t, s, "a")
	created(t, s, "b")
	_, err := s.DeleteToken(t.Context(), srv.ID, issued(t, s, srv.ID, "t").ID)
	wantErr(t, err, nil)
	at, err := s.Position(t.Context())
	wantErr(t, err, nil)
	wantEqual(t, "reached", reached(t, s), store.Reached{Position: at, Revision: 2})
	wantEqual(t, "position", at, revocation.Position{Database: at.Database, Epoch: 1, Seq: 1})
}

// testRestoredNumbers: after it every number is above all that was used, and
// whoever followed the database, wherever it was, must read everything anew.
func testRestoredNumbers(t *testing.T, engine New) {
	for _, tt := range []struct {
		name                       string
		epochs, entries, revisions int64
	}{
		{"older", 0, 10, 20},
		{"much older", 2, 1000, 50_000},
		{"older by settings alone", 0, 0, 1},
		{"of an older epoch, and longer", 3, -1, -1},
		{"as it was", 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fresh(t, engine, store.Config{})
			srv := created(t, s, "a")
			_, err := s.DeleteToken(t.Context(), srv.ID, issued(t, s, srv.ID, "t").ID)
			wantErr(t, err, nil)
			before := reached(t, s)
			seen := ahead(before, tt.epochs, tt.entries, tt.revisions)
			got, err := s.AcceptRestore(t.Context(), store.Restore{Seen: seen})
			wantErr(t, err, nil)
			now := reached(t, s)
			wantEqual(t, "ended", got, store.Ended{Now: now})
			wantEqual(t, "epoch", now.Epoch, max(before.Epoch, seen.Epoch)+1)
			wantEqual(t, "seq", now.Seq, max(before.Seq, seen.Seq))
			if now.Revision <= max(before.Revision, seen.Revision) {
				t.Errorf("revision %d after %d, and %d was seen", now.Revision, before.Revision, seen.Revision)
			}
			wantEverythingAnew(t, s, []int64{0, before.Revision, seen.Revision, now.Revision - 1}, now.Revision)
			oldest, err := s.OldestRevocation(t.Context())
			wantErr(t, err, nil)
			wantEqual(t, "a gap up to", oldest, now.Seq)
			list, err := s.RevocationsSince(t.Context(), 0, 0)
			wantErr(t, err, nil)
			wantEqual(t, "entries kept", len(list), 1)
		})
	}
}

// wantEverythingAnew wants a gap from everywhere but the newest revision, also
// when there has been a change since.
func wantEverythingAnew(t *testing.T, s *store.Store, followers []int64, newest int64) {
	t.Helper()
	for range 2 {
		for _, at := range followers {
			if _, err := s.ChangesSince(t.Context(), at, 0); !errors.Is(err, store.ErrGap) {
				t.Errorf("changes since %d: error %v, want %v", at, err, store.ErrGap)
			}
		}
		srv := created(t, s, fmt.Sprint("server-", revision(t, s)))
		wantEqual(t, "next revision", srv.Revision, newest+1)
		changes, err := s.ChangesSince(t.Context(), newest, 0)
		wantErr(t, err, nil)
		wantEqual(t, "changes", changes, []store.Change{{Revision: newest + 1, Kind: store.ChangeServer, Key: srv.ID.String()}})
		newest++
	}
}

// testEndAgain: what was ended after the backup ends once more, and also what
// the database does not know: a replica may.
func testEndAgain(t *testing.T, engine New) {
	clock := newClock()
	s := fresh(t, engine, store.Config{Now: clock.now})
	slow, err := s.CreateServer(t.Context(), store.Server{Name: "slow", Limits: store.Limits{CallLimit: time.Hour}}, nil)
	wantErr(t, err, nil)
	lost, kept := created(t, s, "lost"), created(t, s, "kept")
	dead, alive := issued(t, s, slow.ID, "dead"), issued(t, s, slow.ID, "alive")
	issued(t, s, lost.ID, "lost 1")
	issued(t, s, lost.ID, "lost 2")
	stranger := identity.NewServerID()
	end := []revocation.Entry{
		{Seq: 1, Kind: revocation.KindAccessToken, Key: dead.ID, Server: slow.ID},
		{Seq: 2, Kind: revocation.KindServer, Key: lost.ID.String(), Server: lost.ID},
		{Seq: 3, Kind: revocation.KindAccessToken, Key: "made and deleted", Server: kept.ID},
		{Seq: 4, Kind: revocation.KindServer, Key: stranger.String(), Server: stranger},
	}
	notices := s.Changed()
	<-notices // what was before
	got, err := s.AcceptRestore(t.Context(), store.Restore{Seen: ahead(reached(t, s), 0, 40, 7), End: end})
	wantErr(t, err, nil)
	wantEqual(t, "ended", got, store.Ended{Tokens: 3, Servers: 1, Now: reached(t, s)})
	wantEqual(t, "seq", got.Now.Seq, int64(44))
	wantEqual(t, "notices", len(notices), 1)
	for i, life := range []time.Duration{time.Hour, 10 * time.Minute, 10 * time.Minute, 24 * time.Hour} {
		end[i].Seq, end[i].Life = int64(41+i), revocation.Life(life)
		end[i].Until = clock.now().Add(end[i].Life)
	}
	log, err := s.RevocationsSince(t.Context(), 0, 0)
	wantErr(t, err, nil)
	wantEqual(t, "log", log, end)
	for name, want := range map[string]error{"dead": store.ErrNotFound, "alive": nil, "lost 1": store.ErrNotFound, "lost 2": store.ErrNotFound} {
		_, at, err := s.TokenByDigest(t.Context(), digest(name))
		wantErr(t, err, want)
		wantEqual(t, "resolved at", at, got.Now.Position)
	}
	_, err = s.Server(t.Context(), lost.ID)
	wantErr(t, err, store.ErrNotFound)
	e, err := s.DeleteToken(t.Context(), slow.ID, alive.ID)
	wantErr(t, err, nil)
	wantEqual(t, "seq goes on", e.Seq, int64(45))
}

func testEndAll(t *testing.T, engine New) {
	clock := newClock()
	s := fresh(t, engine, store.Config{Now: clock.now})
	slow, err := s.CreateServer(t.Context(), store.Server{Name: "slow", Limits: store.Limits{CallLimit: time.Hour}}, nil)
	wantErr(t, err, nil)
	quick, lost := created(t, s, "quick"), created(t, s, "lost")
	const each = 300
	until := map[string]time.Time{} // token -> when its entry may leave
	for i := range each {
		until[issued(t, s, slow.ID, fmt.Sprint("slow ", i)).ID] = clock.now().Add(revocation.Life(time.Hour))
		until[issued(t, s, quick.ID, fmt.Sprint("quick ", i)).ID] = clock.now().Add(revocation.Life(0))
	}
	issued(t, s, lost.ID, "of a server that is ended")
	got, err := s.AcceptRestore(t.Context(), store.Restore{
		Seen: ahead(reached(t, s), 0, 1, 1), All: true,
		End: []revocation.Entry{{Kind: revocation.KindServer, Key: lost.ID.String(), Server: lost.ID}},
	})
	wantErr(t, err, nil)
	wantEqual(t, "ended", got, store.Ended{Tokens: 2*each + 1, Servers: 1, Now: reached(t, s)})
	log, err := s.RevocationsSince(t.Context(), 0, 0)
	wantErr(t, err, nil)
	wantEqual(t, "entries", len(log), 2*each+1)
	for i, e := range log {
		wantEqual(t, "seq", e.Seq, int64(i+2))
		if i == 0 {
			continue // the server's
		}
		wantEqual(t, "until", e.Until, until[e.Key])
		wantEqual(t, "life", e.Life, e.Until.Sub(clock.now()))
		delete(until, e.Key)
	}
	wantEqual(t, "tokens without an entry", len(until), 0)
	for _, srv := range []store.Server{slow, quick} {
		list, _, err := s.Tokens(t.Context(), srv.ID, store.Page{})
		wantErr(t, err, nil)
		wantEqual(t, "tokens", len(list), 0)
	}
}

// testRestoreRefused: an error changes nothing, what was ended before it
// included.
func testRestoreRefused(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	srv := created(t, s, "a")
	tok := issued(t, s, srv.ID, "t")
	ends := revocation.Entry{Kind: revocation.KindAccessToken, Key: tok.ID, Server: srv.ID}
	before := reached(t, s)
	other := ahead(before, 0, 9, 9)
	other.Database = "another"
	for _, tt := range []struct {
		name string
		give store.Restore
	}{
		{"another database", store.Restore{Seen: other, All: true}},
		{"nothing seen", store.Restore{All: true}},
		{"unknown kind", store.Restore{Seen: before, End: []revocation.Entry{ends, {Kind: 99}}, All: true}},
	} {
		if _, err := s.AcceptRestore(t.Context(), tt.give); err == nil || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: error %v, want a refusal", tt.name, err)
		}
		wantEqual(t, tt.name, reached(t, s), before)
		_, err := s.Token(t.Context(), srv.ID, tok.ID)
		wantErr(t, err, nil)
		changes, err := s.ChangesSince(t.Context(), 0, 0)
		wantErr(t, err, nil)
		wantEqual(t, "changes", len(changes), 1)
	}
}

// testRestoreBesideDeletes: every token ends once, and no seq comes twice,
// whoever deletes at the same time.
func testRestoreBesideDeletes(t *testing.T, engine New) {
	open := engine(t)
	s, other := opened(t, open, store.Config{}), opened(t, open, store.Config{})
	srv := created(t, s, "a")
	var tokens []store.AccessToken
	for i := range 60 {
		tokens = append(tokens, issued(t, s, srv.ID, fmt.Sprint(i)))
	}
	seen := ahead(reached(t, s), 0, 5, 5)
	begin := make(chan struct{})
	half := sync.OnceFunc(func() { close(begin) })
	var group errgroup.Group
	group.Go(func() error {
		defer half()
		for i, tok := range tokens {
			if i == len(tokens)/2 {
				half()
			}
			if _, err := other.DeleteToken(t.Context(), srv.ID, tok.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		<-begin
		_, err := s.AcceptRestore(t.Context(), store.Restore{Seen: seen, All: true})
		return err
	})
	wantErr(t, group.Wait(), nil)
	log, err := s.RevocationsSince(t.Context(), 0, 0)
	wantErr(t, err, nil)
	ended := map[string]int{}
	for _, e := range log {
		ended[e.Key]++
	}
	wantEqual(t, "entries", len(log), len(tokens))
	wantEqual(t, "tokens ended", len(ended), len(tokens))
	wantEqual(t, "newest", log[len(log)-1].Seq, seq(t, s))
}
