package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/mask"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func decision(id string, n int) store.Decision {
	return store.Decision{ID: id, Time: time.Unix(int64(n), 0), JSON: fmt.Appendf(nil, `{"n":%d}`, n)}
}

func testDecisions(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	want := func(id, text string, wantError error) {
		t.Helper()
		got, err := s.Decision(t.Context(), id)
		wantErr(t, err, wantError)
		wantEqual(t, id, string(got.JSON), text)
	}
	wantErr(t, s.AddDecisions(t.Context(), nil), nil)
	want("a", "", store.ErrNotFound)
	wantErr(t, s.AddDecisions(t.Context(), []store.Decision{decision("a", 1), decision("b", 2), decision("b", 3)}), nil)
	want("a", `{"n":1}`, nil)
	want("b", `{"n":3}`, nil)
	var many []store.Decision
	for i := range store.KeptDecisions - 2 {
		many = append(many, decision(fmt.Sprint(i), i))
	}
	wantErr(t, s.AddDecisions(t.Context(), many), nil)
	want("a", "", store.ErrNotFound)
	want("b", `{"n":3}`, nil)
	want("0", `{"n":0}`, nil)
	many = append(many, many...)
	many[len(many)-1] = decision("last", 7)
	wantErr(t, s.AddDecisions(t.Context(), many), nil)
	want("b", "", store.ErrNotFound)
	want("9000", `{"n":9000}`, nil)
	want("last", `{"n":7}`, nil)
	wantEqual(t, "revision", revision(t, s), int64(0))
}

// The ring is read from the newest on, in pages or as a whole, and counts bytes.
func testDecisionLists(t *testing.T, engine New) {
	s := fresh(t, engine, store.Config{})
	ids := func(limit int) (out []string) {
		wantErr(t, s.EachDecision(t.Context(), limit, func(d store.Decision) error { out = append(out, d.ID); return nil }), nil)
		return out
	}
	wantEqual(t, "an empty ring", len(ids(10)), 0)
	var added []store.Decision
	var want []string
	for i := range 1203 {
		added = append(added, decision(fmt.Sprint(i), i))
		want = append([]string{fmt.Sprint(i)}, want...)
	}
	wantErr(t, s.AddDecisions(t.Context(), added), nil)
	wantEqual(t, "all", ids(store.KeptDecisions), want)
	wantEqual(t, "some", ids(7), want[:7])
	wantEqual(t, "none", len(ids(0)), 0)
	stop := errors.New("stop")
	seen := 0
	wantErr(t, s.EachDecision(t.Context(), 100, func(store.Decision) error { seen++; return stop }), stop)
	wantEqual(t, "seen", seen, 1)

	var paged []string
	for page := (store.Page{Limit: 400}); ; {
		part, next, err := s.Decisions(t.Context(), page)
		wantErr(t, err, nil)
		for _, d := range part {
			paged = append(paged, d.ID)
		}
		if page.After = next; next == "" {
			break
		}
		wantErr(t, s.AddDecisions(t.Context(), []store.Decision{decision("between", 0)}), nil)
	}
	wantEqual(t, "in pages", paged, want)
	for _, cursor := range []string{"x", "AA", "MTA", "ADA", "ALTE", "AHg"} {
		_, _, err := s.Decisions(t.Context(), store.Page{After: cursor})
		wantErr(t, err, store.ErrCursor)
	}

	large := decision("large", 1)
	large.JSON = []byte(`"` + strings.Repeat("x", store.KeptDecisionBytes/100) + `"`)
	wantErr(t, s.AddDecisions(t.Context(), slices.Repeat([]store.Decision{large}, 90)), nil)
	if kept := ids(store.KeptDecisions); len(kept) < 1000 {
		t.Fatalf("%d are kept while there is room", len(kept))
	}
	wantErr(t, s.AddDecisions(t.Context(), slices.Repeat([]store.Decision{large}, 90)), nil)
	if kept := len(ids(store.KeptDecisions)); kept < 95 || kept > 99 {
		t.Fatalf("%d long ones are kept", kept)
	}
	wantErr(t, s.AddDecisions(t.Context(), []store.Decision{decision("small", 1)}), nil)
	wantEqual(t, "the newest", ids(1), []string{"small"})
}

// argued is a server that records arguments, and one that does not.
func argued(t *testing.T, s *store.Store, rules ...string) (on, off store.Server) {
	t.Helper()
	on, err := s.CreateServer(t.Context(), store.Server{Name: "on", RecordArguments: &store.RecordArguments{Mask: rules, Keep: time.Hour}}, nil)
	wantErr(t, err, nil)
	return on, created(t, s, "off")
}

// Argument values are kept only for a server that records them, by the rules of
// this moment, and no longer than it says.
func testArguments(t *testing.T, engine New) {
	clock := newClock()
	s := fresh(t, engine, store.Config{Now: clock.now})
	rules := []string{"/password"}
	on, off := argued(t, s, rules...)
	add := func(id string, server identity.ServerID, maskID string) {
		t.Helper()
		d := decision(id, 1)
		d.Server, d.Arguments, d.Mask = server.String(), []byte(`[{"a":1}]`), maskID
		wantErr(t, s.AddDecisions(t.Context(), []store.Decision{d}), nil)
	}
	want := func(id, text string) {
		t.Helper()
		got, err := s.Decision(t.Context(), id)
		wantErr(t, err, nil)
		wantEqual(t, id, string(got.Arguments), text)
		wantEqual(t, id+" until", got.ArgumentsUntil.IsZero(), text == "")
	}
	same := mask.ID(rules)
	add("kept", on.ID, same)
	add("other rules", on.ID, mask.ID(nil))
	add("not recorded", off.ID, same)
	add("no such server", identity.NewServerID(), same)
	want("kept", `[{"a":1}]`)
	want("other rules", "")
	want("not recorded", "")
	want("no such server", "")

	change := func(edit func(*store.Server)) {
		t.Helper()
		_, err := s.UpdateServer(t.Context(), on.ID, func(srv *store.Server) error { edit(srv); return nil }, nil)
		wantErr(t, err, nil)
	}
	change(func(srv *store.Server) { srv.Enabled = true })
	want("kept", `[{"a":1}]`)
	change(func(srv *store.Server) { srv.RecordArguments = &store.RecordArguments{Mask: rules, Keep: time.Minute} })
	want("kept", "")
	add("shorter", on.ID, same)
	change(func(srv *store.Server) { srv.RecordArguments.Mask = []string{"/password", "/token"} })
	want("shorter", "")
	add("late", on.ID, same) // masked before the change, and comes after it
	want("late", "")

	same = mask.ID([]string{"/password", "/token"})
	add("first", on.ID, same)
	clock.advance(59 * time.Second)
	add("second", on.ID, same)
	clock.advance(time.Second)
	want("first", "") // although it is not dropped yet
	dropped, err := s.DropArguments(t.Context(), clock.now().Add(time.Hour))
	wantErr(t, err, nil)
	wantEqual(t, "dropped", dropped, int64(1))
	want("second", `[{"a":1}]`)
	change(func(srv *store.Server) { srv.RecordArguments = nil })
	want("second", "")
	change(func(srv *store.Server) { srv.RecordArguments = &store.RecordArguments{Keep: time.Minute} })
	add("third", on.ID, mask.ID(nil))
	want("third", `[{"a":1}]`)
	_, err = s.DeleteServer(t.Context(), on.ID)
	wantErr(t, err, nil)
	want("third", "")
	dropped, err = s.DropArguments(t.Context(), clock.now().Add(time.Hour))
	wantErr(t, err, nil)
	wantEqual(t, "dropped", dropped, int64(0))
}
