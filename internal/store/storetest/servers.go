package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func whole() store.Server {
	return store.Server{
		Name: "weather ☂ 'x'", Enabled: true, MCP: "https://a.example/mcp", RPC: "http://[::1]:8080/rpc",
		CA: "-----BEGIN CERTIFICATE-----\n", Legacy: true, Modern: true,
		AllowedOrigins: []string{"https://b.example", "http://localhost:3000"},
		Labels:         map[string]string{"team": "sky", "": "empty"},
		Limits:         store.Limits{MaxBody: 1 << 16, CallLimit: 90 * time.Second},
		Batches:        true, LiteralDenials: true,
		Grants:          jsontext.Value(`[{"to": "ci", "tools": ["a ☂"]}]`),
		PolicyData:      jsontext.Value(`{"hours": [9, 17]}`),
		RecordArguments: &store.RecordArguments{Mask: []string{"/path/*"}, Keep: 90 * time.Minute},
		ToolChanges:     store.ToolChangesDeny,
	}
}

func testServers(t *testing.T, engine New) {
	t.Run("comes back whole", func(t *testing.T) {
		time := newClock()
		s := fresh(t, engine, store.Config{Now: time.now})
		got, err := s.CreateServer(t.Context(), whole(), []store.Header{header("X-Key", "k")})
		wantErr(t, err, nil)
		want := whole()
		want.ID, want.HeaderNames = got.ID, []string{"X-Key"}
		want.Revision, want.HeadersRevision = 1, 1
		want.CreatedAt, want.UpdatedAt = time.now(), time.now()
		wantEqual(t, "created", got, want)
		read, err := s.Server(t.Context(), got.ID)
		wantErr(t, err, nil)
		wantEqual(t, "read", read, want)
		read, err = s.ServerByName(t.Context(), want.Name)
		wantErr(t, err, nil)
		wantEqual(t, "read by name", read, want)
	})
	t.Run("defaults", func(t *testing.T) {
		s := fresh(t, engine, store.Config{})
		got := created(t, s, "a")
		wantEqual(t, "limits", got.Limits, store.Limits{MaxBody: 4 << 20, CallLimit: 10 * time.Minute})
		wantEqual(t, "tool changes", got.ToolChanges, store.ToolChangesAlarm)
		if got.ID.IsZero() {
			t.Fatal("no id was made")
		}
	})
	t.Run("unknown", func(t *testing.T) {
		s := fresh(t, engine, store.Config{})
		_, err := s.Server(t.Context(), identity.NewServerID())
		wantErr(t, err, store.ErrNotFound)
		_, err = s.ServerByName(t.Context(), "nobody")
		wantErr(t, err, store.ErrNotFound)
		_, _, err = s.UpstreamHeaders(t.Context(), identity.NewServerID())
		wantErr(t, err, store.ErrNotFound)
	})
	t.Run("taken", func(t *testing.T) { testTaken(t, engine) })
	t.Run("update", func(t *testing.T) { testUpdate(t, engine) })
	t.Run("stopped", func(t *testing.T) { testStopped(t, engine) })
	t.Run("delete", func(t *testing.T) { testDeleteServer(t, engine) })
}

// When a server was last disabled stays known after it was enabled again.
func testStopped(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	srv := created(t, s, "a")
	wantEqual(t, "at first", srv.StoppedRevision, int64(0))
	var stopped int64
	for i, enabled := range []bool{false, false, true, true, false, true} {
		before := srv.Enabled
		var err error
		srv, err = s.UpdateServer(t.Context(), srv.ID, func(srv *store.Server) error {
			srv.Enabled, srv.StoppedRevision = enabled, 99 // not the caller's to say
			return nil
		}, nil)
		wantErr(t, err, nil)
		if before && !enabled {
			stopped = srv.Revision
		}
		stored, err := s.Server(t.Context(), srv.ID)
		wantErr(t, err, nil)
		wantEqual(t, fmt.Sprint("after change ", i), []int64{srv.StoppedRevision, stored.StoppedRevision}, []int64{stopped, stopped})
	}
}

func testTaken(t *testing.T, engine New) {
	time := newClock()
	s := fresh(t, engine, store.Config{Now: time.now})
	a, b := created(t, s, "a"), created(t, s, "b")
	_, err := s.DeleteServer(t.Context(), b.ID)
	wantErr(t, err, nil)
	for _, tt := range []struct {
		name string
		srv  store.Server
		want error
	}{
		{"same name", store.Server{Name: "a"}, store.ErrNameTaken},
		{"same id", store.Server{ID: a.ID, Name: "c"}, store.ErrIDTaken},
		{"id of a deleted server that replicas still refuse", store.Server{ID: b.ID, Name: "c"}, store.ErrIDTaken},
		{"name of a deleted server", store.Server{Name: "b"}, nil},
		{"own id", store.Server{ID: identity.ServerID{1}, Name: "d"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := revision(t, s)
			got, err := s.CreateServer(t.Context(), tt.srv, nil)
			wantErr(t, err, tt.want)
			if err != nil {
				wantEqual(t, "revision after a refusal", revision(t, s), before)
			} else if !tt.srv.ID.IsZero() {
				wantEqual(t, "id", got.ID, tt.srv.ID)
			}
		})
	}
}

func testUpdate(t *testing.T, engine New) {
	time := newClock()
	s := fresh(t, engine, store.Config{Now: time.now})
	a := created(t, s, "a")
	created(t, s, "b")
	errEdit := errors.New("not like this")
	for _, tt := range []struct {
		name string
		id   identity.ServerID
		edit func(*store.Server) error
		want error
	}{
		{"name of another", a.ID, func(srv *store.Server) error { srv.Name = "b"; return nil }, store.ErrNameTaken},
		{"refused by the caller", a.ID, func(srv *store.Server) error { srv.Name = "c"; return errEdit }, errEdit},
		{"unknown", identity.NewServerID(), func(*store.Server) error { return nil }, store.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := revision(t, s)
			_, err := s.UpdateServer(t.Context(), tt.id, tt.edit, &[]store.Header{header("X", "y")})
			wantErr(t, err, tt.want)
			wantEqual(t, "revision", revision(t, s), before)
			read, err := s.Server(t.Context(), a.ID)
			wantErr(t, err, nil)
			wantEqual(t, "server", read, a)
		})
	}
	time.advance(1e9)
	got, err := s.UpdateServer(t.Context(), a.ID, func(srv *store.Server) error {
		*srv = whole()
		srv.ID, srv.Revision, srv.HeaderNames = identity.NewServerID(), 77, []string{"Forged"}
		return nil
	}, nil)
	wantErr(t, err, nil)
	want := whole()
	want.ID, want.Revision, want.CreatedAt, want.UpdatedAt = a.ID, 3, a.CreatedAt, time.now()
	wantEqual(t, "updated", got, want)
	read, err := s.Server(t.Context(), a.ID)
	wantErr(t, err, nil)
	wantEqual(t, "read", read, want)
}

func testDeleteServer(t *testing.T, engine New) {
	clock := newClock()
	s := fresh(t, engine, store.Config{Now: clock.now})
	a := created(t, s, "a", header("X-Key", "k"))
	b := created(t, s, "b")
	issued(t, s, a.ID, "of a")
	kept := issued(t, s, b.ID, "of b")
	entry, err := s.DeleteServer(t.Context(), a.ID)
	wantErr(t, err, nil)
	wantEqual(t, "entry", entry, revocation.Entry{
		Seq: 1, Kind: revocation.KindServer, Key: a.ID.String(), Server: a.ID, Until: clock.now().Add(15 * time.Minute), Life: 15 * time.Minute,
	})
	_, err = s.DeleteServer(t.Context(), a.ID)
	wantErr(t, err, store.ErrNotFound)
	wantEqual(t, "seq after a refusal", seq(t, s), int64(1))
	_, at, err := s.TokenByDigest(t.Context(), digest("of a"))
	wantErr(t, err, store.ErrNotFound)
	wantEqual(t, "position", at.Seq, int64(1))
	list, _, err := s.Tokens(t.Context(), a.ID, store.Page{})
	wantErr(t, err, nil)
	wantEqual(t, "tokens left", len(list), 0)
	_, _, err = s.UpstreamHeaders(t.Context(), a.ID)
	wantErr(t, err, store.ErrNotFound)
	got, _, err := s.TokenByDigest(t.Context(), digest("of b"))
	wantErr(t, err, nil)
	wantEqual(t, "token of another server", got, kept)
}

func testHeaders(t *testing.T, engine New) {
	t.Run("order and values", func(t *testing.T) {
		s := fresh(t, engine, store.Config{})
		want := []store.Header{header("B", "2\n\x00é"), header("A", "1"), header("B", "")}
		srv := created(t, s, "a", want...)
		got, at, err := s.UpstreamHeaders(t.Context(), srv.ID)
		wantErr(t, err, nil)
		wantEqual(t, "headers", got, want)
		wantEqual(t, "revision", at, srv.Revision)
	})
	set := func(f func(*store.Server)) func(*store.Server) error {
		return func(srv *store.Server) error { f(srv); return nil }
	}
	other := []store.Header{header("Other", "o")}
	for _, tt := range []struct {
		name string
		edit func(*store.Server)
		new  *[]store.Header
		want []string
		rev  int64
	}{
		{"kept", func(srv *store.Server) { srv.Enabled = false }, nil, []string{"X-Key"}, 1},
		{"replaced", func(*store.Server) {}, &other, []string{"Other"}, 2},
		{"removed", func(*store.Server) {}, &[]store.Header{}, nil, 2},
		{"path: kept", func(srv *store.Server) { srv.MCP = "https://mcp.example/else?x=1" }, nil, []string{"X-Key"}, 1},
		{"spelling: kept", func(srv *store.Server) { srv.MCP = "HTTPS://MCP.example:443/" }, nil, []string{"X-Key"}, 1},
		{"url removed: kept", func(srv *store.Server) { srv.MCP = "" }, nil, []string{"X-Key"}, 1},
		{"host: dropped", func(srv *store.Server) { srv.MCP = "https://evil.example/" }, nil, nil, 2},
		{"port: dropped", func(srv *store.Server) { srv.MCP = "https://mcp.example:8443/" }, nil, nil, 2},
		{"scheme: dropped", func(srv *store.Server) { srv.MCP = "http://mcp.example:443/" }, nil, nil, 2},
		{"second upstream: dropped", func(srv *store.Server) { srv.RPC = "https://evil.example/" }, nil, nil, 2},
		{"unreadable: dropped", func(srv *store.Server) { srv.MCP = "https://mcp.example/%zz" }, nil, nil, 2},
		{"no host: dropped", func(srv *store.Server) { srv.MCP = "mcp.example" }, nil, nil, 2},
		{"host, given again", func(srv *store.Server) { srv.MCP = "https://evil.example/" }, &other, []string{"Other"}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fresh(t, engine, store.Config{})
			srv := created(t, s, "a", header("X-Key", "k"))
			got, err := s.UpdateServer(t.Context(), srv.ID, set(tt.edit), tt.new)
			wantErr(t, err, nil)
			wantEqual(t, "names", got.HeaderNames, tt.want)
			wantEqual(t, "headers revision", got.HeadersRevision, tt.rev)
			headers, rev, err := s.UpstreamHeaders(t.Context(), srv.ID)
			wantErr(t, err, nil)
			wantEqual(t, "headers revision read", rev, tt.rev)
			wantEqual(t, "headers", len(headers), len(tt.want))
		})
	}
}

func testServerLists(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	var want []string
	for i := range 103 {
		want = append(want, created(t, s, fmt.Sprintf("n%03d", i)).Name)
	}
	t.Run("pages", func(t *testing.T) {
		for _, tt := range []struct {
			limit int
			want  []int // sizes of the pages
		}{
			{0, []int{100, 3}}, {-1, slices.Repeat([]int{1}, 103)}, {103, []int{103}}, {102, []int{102, 1}}, {9999, []int{103}},
		} {
			var got []string
			var sizes []int
			for page := (store.Page{Limit: tt.limit}); ; {
				list, next, err := s.Servers(t.Context(), page)
				wantErr(t, err, nil)
				for _, srv := range list {
					got = append(got, srv.Name)
				}
				sizes = append(sizes, len(list))
				if page.After = next; next == "" {
					break
				}
			}
			wantEqual(t, "names", got, want)
			wantEqual(t, "sizes", sizes, tt.want)
		}
	})
	t.Run("all", func(t *testing.T) {
		var got []string
		at, err := s.AllServers(t.Context(), func(srv store.Server) error {
			got = append(got, srv.Name)
			return nil
		})
		wantErr(t, err, nil)
		wantEqual(t, "revision", at, int64(103))
		slices.Sort(got)
		wantEqual(t, "names", got, want)
		errEnough := errors.New("enough")
		_, err = s.AllServers(t.Context(), func(store.Server) error { return errEnough })
		wantErr(t, err, errEnough)
	})
	t.Run("comings and goings", func(t *testing.T) { testMovingList(t, s) })
	t.Run("forged cursors", func(t *testing.T) {
		for _, after := range []string{"x", "====", "AAAA", "gAA_", string(slices.Repeat([]byte("A"), 5000))} {
			_, _, err := s.Servers(t.Context(), store.Page{After: after})
			wantErr(t, err, store.ErrCursor)
			_, _, err = s.Tokens(t.Context(), identity.ServerID{1}, store.Page{After: after})
			wantErr(t, err, store.ErrCursor)
		}
	})
}

// testMovingList deletes the very server a cursor stands on, and adds one on
// either side of it.
func testMovingList(t *testing.T, s *store.Store) {
	list, next, err := s.Servers(t.Context(), store.Page{Limit: 50})
	wantErr(t, err, nil)
	_, err = s.DeleteServer(t.Context(), list[49].ID)
	wantErr(t, err, nil)
	created(t, s, "n010b")
	created(t, s, "n060b")
	list, _, err = s.Servers(t.Context(), store.Page{After: next})
	wantErr(t, err, nil)
	wantEqual(t, "first of the second page", list[0].Name, "n050")
	wantEqual(t, "the new one", list[11].Name, "n060b")
	wantEqual(t, "size", len(list), 54)
}
