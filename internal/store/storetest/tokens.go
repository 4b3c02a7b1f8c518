package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func testTokens(t *testing.T, engine New) {
	clock := newClock()
	s := fresh(t, engine, store.Config{Now: clock.now})
	srv, other := created(t, s, "a"), created(t, s, "b")
	t.Run("comes back whole", func(t *testing.T) { testTokenWhole(t, s, clock, srv.ID) })
	t.Run("refused", func(t *testing.T) { testTokenRefused(t, s, srv.ID) })
	t.Run("delete", func(t *testing.T) { testDeleteToken(t, s, clock, srv.ID, other.ID) })
	t.Run("expired, resolved all the same", func(t *testing.T) {
		want, err := s.CreateToken(t.Context(), store.AccessToken{
			Server: srv.ID, Digest: digest("expired"), ExpiresAt: clock.now().Add(-time.Hour),
		})
		wantErr(t, err, nil)
		got, _, err := s.TokenByDigest(t.Context(), digest("expired"))
		wantErr(t, err, nil)
		wantEqual(t, "token", got, want)
	})
	t.Run("last use", func(t *testing.T) { testTouch(t, s, clock, srv.ID) })
	t.Run("drop expired", func(t *testing.T) { testDropExpired(t, engine) })
}

func testTokenWhole(t *testing.T, s *store.Store, clock *clock, server identity.ServerID) {
	for _, tt := range []struct {
		name     string
		give     store.AccessToken
		narrowed bool
	}{
		{"plain", store.AccessToken{Name: "plain"}, false},
		{"scopes", store.AccessToken{Scopes: []string{"tools:call", `tools:call:"x"`}, Narrowed: true}, true},
		{"scopes alone narrow", store.AccessToken{Scopes: []string{"tools:call"}}, true},
		{"narrowed to nothing", store.AccessToken{Narrowed: true}, true},
		{"expiry below a microsecond", store.AccessToken{ExpiresAt: clock.now().Add(time.Hour + 123)}, false},
		{"what the store sets", store.AccessToken{CreatedAt: time.Unix(1, 0), LastUsedAt: time.Unix(2, 0)}, false},
		{"own id", store.AccessToken{ID: "mine"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := revision(t, s)
			tt.give.Server, tt.give.Digest = server, digest(tt.name)
			got, err := s.CreateToken(t.Context(), tt.give)
			wantErr(t, err, nil)
			want := tt.give
			if want.ID == "" {
				want.ID = got.ID
			}
			want.Narrowed, want.CreatedAt, want.LastUsedAt = tt.narrowed, clock.now(), time.Time{}
			want.ExpiresAt = want.ExpiresAt.Truncate(time.Microsecond)
			wantEqual(t, "created", got, want)
			read, err := s.Token(t.Context(), server, got.ID)
			wantErr(t, err, nil)
			wantEqual(t, "read", read, want)
			read, at, err := s.TokenByDigest(t.Context(), want.Digest)
			wantErr(t, err, nil)
			wantEqual(t, "resolved", read, want)
			position, err := s.Position(t.Context())
			wantErr(t, err, nil)
			wantEqual(t, "position", at, position)
			wantEqual(t, "revision", revision(t, s), before)
		})
	}
}

func testTokenRefused(t *testing.T, s *store.Store, server identity.ServerID) {
	first := issued(t, s, server, "first")
	gone := issued(t, s, server, "gone")
	_, err := s.DeleteToken(t.Context(), server, gone.ID)
	wantErr(t, err, nil)
	for _, tt := range []struct {
		name string
		give store.AccessToken
		want error
	}{
		{"unknown server", store.AccessToken{Server: identity.NewServerID(), Digest: digest("x")}, store.ErrNotFound},
		{"digest in use", store.AccessToken{Server: server, Digest: first.Digest}, store.ErrIDTaken},
		{"id in use", store.AccessToken{ID: first.ID, Server: server, Digest: digest("x")}, store.ErrIDTaken},
		{"id that replicas still refuse", store.AccessToken{ID: gone.ID, Server: server, Digest: digest("x")}, store.ErrIDTaken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.CreateToken(t.Context(), tt.give)
			wantErr(t, err, tt.want)
		})
	}
	if _, err := s.CreateToken(t.Context(), store.AccessToken{Server: server}); err == nil {
		t.Fatal("a token without a digest was stored")
	}
	_, _, err = s.TokenByDigest(t.Context(), digest("x"))
	wantErr(t, err, store.ErrNotFound)
}

func testDeleteToken(t *testing.T, s *store.Store, clock *clock, server, other identity.ServerID) {
	made := issued(t, s, server, "to delete")
	before, rev := seq(t, s), revision(t, s)
	_, err := s.DeleteToken(t.Context(), other, made.ID)
	wantErr(t, err, store.ErrNotFound)
	_, err = s.DeleteToken(t.Context(), server, "unknown")
	wantErr(t, err, store.ErrNotFound)
	_, err = s.Token(t.Context(), other, made.ID)
	wantErr(t, err, store.ErrNotFound)
	wantEqual(t, "seq after refusals", seq(t, s), before)

	got, err := s.DeleteToken(t.Context(), server, made.ID)
	wantErr(t, err, nil)
	want := revocation.Entry{
		Seq: before + 1, Kind: revocation.KindAccessToken, Key: made.ID, Server: server,
		Until: clock.now().Add(revocation.Life(store.DefaultCallLimit)), Life: revocation.Life(store.DefaultCallLimit),
	}
	wantEqual(t, "entry", got, want)
	list, err := s.RevocationsSince(t.Context(), before, 10)
	wantErr(t, err, nil)
	wantEqual(t, "log", list, []revocation.Entry{want})
	_, at, err := s.TokenByDigest(t.Context(), made.Digest)
	wantErr(t, err, store.ErrNotFound)
	wantEqual(t, "position", at.Seq, want.Seq)
	_, err = s.DeleteToken(t.Context(), server, made.ID)
	wantErr(t, err, store.ErrNotFound)
	wantEqual(t, "revision", revision(t, s), rev)
}

func testTouch(t *testing.T, s *store.Store, clock *clock, server identity.ServerID) {
	made := issued(t, s, server, "touched")
	early, late := clock.now().Add(time.Second), clock.now().Add(time.Minute)
	before := revision(t, s)
	for _, used := range []map[string]time.Time{nil, {made.ID: late, "gone": late}, {made.ID: early}} {
		wantErr(t, s.TouchTokens(t.Context(), used), nil)
	}
	got, err := s.Token(t.Context(), server, made.ID)
	wantErr(t, err, nil)
	wantEqual(t, "last use", got.LastUsedAt, late)
	wantEqual(t, "revision", revision(t, s), before)
	many := map[string]time.Time{made.ID: late.Add(1e9)}
	for i := range 1200 {
		many[fmt.Sprint(i)] = late
	}
	wantErr(t, s.TouchTokens(t.Context(), many), nil)
	got, err = s.Token(t.Context(), server, made.ID)
	wantErr(t, err, nil)
	wantEqual(t, "last use among many", got.LastUsedAt, late.Add(1e9))
}

func testDropExpired(t *testing.T, engine New) {
	clock := newClock()
	s := fresh(t, engine, store.Config{Now: clock.now})
	srv := created(t, s, "a")
	for name, expires := range map[string]time.Time{
		"never": {}, "old": clock.now().Add(-40 * 24 * time.Hour), "new": clock.now().Add(-time.Hour), "live": clock.now().Add(time.Hour),
	} {
		_, err := s.CreateToken(t.Context(), store.AccessToken{ID: name, Server: srv.ID, Digest: digest(name), ExpiresAt: expires})
		wantErr(t, err, nil)
	}
	for _, tt := range []struct {
		name   string
		before time.Time
		want   int64
		left   int
	}{
		{"a month back", clock.now().Add(-30 * 24 * time.Hour), 1, 3},
		{"again", clock.now().Add(-30 * 24 * time.Hour), 0, 3},
		{"never what has not expired", clock.now().Add(48 * time.Hour), 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, err := s.DropExpiredTokens(t.Context(), tt.before)
			wantErr(t, err, nil)
			wantEqual(t, "dropped", n, tt.want)
			list, _, err := s.Tokens(t.Context(), srv.ID, store.Page{})
			wantErr(t, err, nil)
			wantEqual(t, "left", len(list), tt.left)
		})
	}
}

func testTokenLists(t *testing.T, engine New) {
	clock := newClock()
	s := fresh(t, engine, store.Config{Now: clock.now})
	a, b := created(t, s, "a"), created(t, s, "b")
	want := map[string]bool{}
	for i := range 25 {
		clock.advance(time.Duration(i%3) * time.Millisecond) // some share their time
		want[issued(t, s, a.ID, fmt.Sprint("a", i)).ID] = true
		issued(t, s, b.ID, fmt.Sprint("b", i))
	}
	var last time.Time
	for page := (store.Page{Limit: 4}); ; {
		list, next, err := s.Tokens(t.Context(), a.ID, page)
		wantErr(t, err, nil)
		for _, tok := range list {
			if !want[tok.ID] || tok.CreatedAt.Before(last) {
				t.Fatalf("token %+v is listed twice, out of order or with another server", tok)
			}
			delete(want, tok.ID)
			last = tok.CreatedAt
		}
		if page.After = next; next == "" {
			break
		}
	}
	wantEqual(t, "not listed", len(want), 0)
}
