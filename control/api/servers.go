package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

func (a *api) listServers(r *http.Request, _ []byte) (reply, error) {
	if names, given := r.URL.Query()["name"]; given {
		return a.serverNamed(r.Context(), names[0])
	}
	page, err := pageOf(r)
	if err != nil {
		return reply{}, err
	}
	servers, next, err := a.cfg.Store.Servers(r.Context(), page)
	if err != nil {
		return reply{}, badCursor(err)
	}
	return listOf(servers, next, serverObject), nil
}

// serverNamed lists the one server of that name, or none.
func (a *api) serverNamed(ctx context.Context, name string) (reply, error) {
	srv, err := a.cfg.Store.ServerByName(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return listOf([]store.Server{}, "", serverObject), nil
	}
	if err != nil {
		return reply{}, err
	}
	return listOf([]store.Server{srv}, "", serverObject), nil
}

func (a *api) showServer(r *http.Request, _ []byte) (reply, error) {
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	return reply{body: serverObject(srv)}, nil
}

func (a *api) createServer(r *http.Request, body []byte) (reply, error) {
	var fields serverFields
	if err := decode(body, &fields); err != nil {
		return reply{}, err
	}
	srv := newServer()
	headers, err := fields.headers()
	if err := joinFaults(fields.edit(&srv), err); err != nil {
		return reply{}, err
	}
	if headers == nil {
		headers = &[]store.Header{}
	}
	srv, err = a.cfg.Store.CreateServer(r.Context(), srv, *headers)
	if err != nil {
		return reply{}, err
	}
	a.audit(r.Context(), "server created", "server", srv.ID, "name", srv.Name, "revision", srv.Revision)
	return reply{
		status: http.StatusCreated,
		body:   ChangedServer{Server: serverObject(srv), Applied: a.applied(r.Context(), srv.Revision)},
	}, nil
}

func (a *api) updateServer(r *http.Request, body []byte) (reply, error) {
	var fields serverFields
	if err := decode(body, &fields); err != nil {
		return reply{}, err
	}
	asked := a.cfg.Now()
	srv, dropped, err := a.update(r, &fields)
	if err != nil {
		return reply{}, err
	}
	a.audit(r.Context(), "server updated", "server", srv.ID, "name", srv.Name, "revision", srv.Revision,
		"fields", fields.names(), "headers_dropped", dropped)
	applied, done, err := a.changed(r.Context(), srv, asked)
	return reply{body: ChangedServer{
		Server: serverObject(srv), Applied: applied, Revocation: &done, HeadersDropped: dropped,
	}}, err
}

// update stores the edited server. Stored headers that are not given again are
// dropped by the store, in the same transaction, when an upstream is another
// party afterwards.
func (a *api) update(r *http.Request, fields *serverFields) (srv store.Server, dropped []string, err error) {
	id, err := serverID(r)
	if err != nil {
		return srv, nil, err
	}
	headers, headersErr := fields.headers()
	var before []string
	srv, err = a.cfg.Store.UpdateServer(r.Context(), id, func(srv *store.Server) error {
		before = slices.Clone(srv.HeaderNames)
		return joinFaults(fields.edit(srv), headersErr)
	}, headers)
	if err != nil {
		return srv, nil, notFound(err, errNoServer)
	}
	if headers == nil && len(srv.HeaderNames) == 0 {
		dropped = before
	}
	return srv, dropped, nil
}

func (a *api) enableServer(r *http.Request, _ []byte) (reply, error) {
	srv, err := a.enable(r, true)
	if err != nil {
		return reply{}, err
	}
	return reply{body: ChangedServer{Server: serverObject(srv), Applied: a.applied(r.Context(), srv.Revision)}}, nil
}

func (a *api) disableServer(r *http.Request, _ []byte) (reply, error) {
	asked := a.cfg.Now()
	srv, err := a.enable(r, false)
	if err != nil {
		return reply{}, err
	}
	applied, done, err := a.changed(r.Context(), srv, asked)
	return reply{body: DisabledServer{ID: srv.ID.String(), Revision: srv.Revision, Applied: applied, Revocation: done}}, err
}

func (a *api) enable(r *http.Request, enabled bool) (store.Server, error) {
	id, err := serverID(r)
	if err != nil {
		return store.Server{}, err
	}
	srv, err := a.cfg.Store.UpdateServer(r.Context(), id, func(srv *store.Server) error {
		srv.Enabled = enabled
		return nil
	}, nil)
	if err != nil {
		return srv, notFound(err, errNoServer)
	}
	what := "server disabled"
	if enabled {
		what = "server enabled"
	}
	a.audit(r.Context(), what, "server", srv.ID, "name", srv.Name, "revision", srv.Revision)
	return srv, nil
}

func (a *api) deleteServer(r *http.Request, _ []byte) (reply, error) {
	id, err := serverID(r)
	if err != nil {
		return reply{}, err
	}
	asked := a.cfg.Now()
	entry, err := a.cfg.Store.DeleteServer(r.Context(), id)
	if err != nil {
		return reply{}, a.endedBefore(r.Context(), err, errNoServer)
	}
	a.audit(r.Context(), "server deleted", "server", id, "seq", entry.Seq)
	// The streams end with whichever comes first, the entry or the settings.
	revision, err := a.cfg.Store.Revision(r.Context())
	if err != nil {
		return reply{}, errUnconfirmed(revocation.Result{})
	}
	done, err := a.confirmed(r.Context(), revocation.Change{Seq: entry.Seq, Revision: revision, What: entry.What(), Asked: asked})
	return reply{body: Deleted{ID: id.String(), Revocation: done}}, err
}

// server reads the record that the path names.
func (a *api) server(r *http.Request) (store.Server, error) {
	id, err := serverID(r)
	if err != nil {
		return store.Server{}, err
	}
	srv, err := a.cfg.Store.Server(r.Context(), id)
	return srv, notFound(err, errNoServer)
}

func serverID(r *http.Request) (identity.ServerID, error) {
	id, err := identity.ParseServerID(r.PathValue("id"))
	if err != nil {
		return id, errNoServer
	}
	return id, nil
}

// joinFaults reports the faults of both errors in one answer.
func joinFaults(first, second error) error {
	one, ok1 := errors.AsType[*failure](first)
	two, ok2 := errors.AsType[*failure](second)
	if ok1 && ok2 {
		return append(faults(one.faults), two.faults...).err()
	}
	if first != nil {
		return first
	}
	return second
}

// pageOf reads limit and cursor.
func pageOf(r *http.Request) (store.Page, error) {
	const most, usual = 200, 50
	query := r.URL.Query()
	page := store.Page{After: query.Get("cursor"), Limit: usual}
	if query.Has("limit") {
		n, err := strconv.Atoi(query.Get("limit"))
		if err != nil || n < 1 || n > most {
			var found faults
			found.add("limit", "must be 1 to %d", most)
			return page, found.err()
		}
		page.Limit = n
	}
	return page, nil
}

func badCursor(err error) error {
	if errors.Is(err, store.ErrCursor) {
		var found faults
		found.add("cursor", "is not one that this list gave")
		return found.err()
	}
	return err
}

func listOf[S, T any](rows []S, next string, show func(S) T) reply {
	out := List[T]{Items: make([]T, 0, len(rows)), Next: next}
	for _, row := range rows {
		out.Items = append(out.Items, show(row))
	}
	return reply{body: out}
}
