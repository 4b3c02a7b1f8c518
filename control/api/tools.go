package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// Tool is what is remembered of one tool of a server.
type Tool struct {
	Name      string    `json:"name"`
	State     string    `json:"state"`    // approved or changed
	Approved  string    `json:"approved"` // SHA-256 of its definition in canonical JSON (RFC 8785)
	Seen      string    `json:"seen"`     // of the definition that was listed last
	FirstAt   time.Time `json:"first_seen_at"`
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// ToolsApproved is the answer of an approval.
type ToolsApproved struct {
	Approved int64 `json:"approved"` // how many had changed
	Applied
}

// approveFields is the body of an approval.
type approveFields struct {
	Names optional[[]string] `json:"names"` // absent: all that have changed
}

func (a *api) listTools(r *http.Request, _ []byte) (reply, error) {
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	tools, err := a.cfg.Store.Tools(r.Context(), srv.ID)
	if err != nil {
		return reply{}, err
	}
	return listOf(tools, "", toolObject), nil
}

// approveTools takes the definitions as they were listed last.
func (a *api) approveTools(r *http.Request, body []byte) (reply, error) {
	var fields approveFields
	if err := decode(body, &fields); err != nil {
		return reply{}, err
	}
	if fields.Names.given && len(fields.Names.value) == 0 {
		var found faults
		found.add("names", "must name at least one tool; without it all that have changed are approved")
		return reply{}, found.err()
	}
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	n, revision, err := a.cfg.Store.ApproveTools(r.Context(), srv.ID, fields.Names.value)
	if errors.Is(err, store.ErrNotFound) {
		return reply{}, &failure{status: http.StatusNotFound, detail: "a name is no tool that this server has listed: nothing was approved"}
	}
	if err != nil {
		return reply{}, err
	}
	a.audit(r.Context(), "tools approved", "server", srv.ID, "approved", n, "revision", revision)
	return reply{body: ToolsApproved{Approved: n, Applied: a.applied(r.Context(), revision)}}, nil
}

func toolObject(t store.Tool) Tool {
	out := Tool{
		Name: t.Name, State: "approved", Approved: t.Approved.String(), Seen: t.Seen.String(),
		FirstAt: t.FirstAt, ChangedAt: t.ChangedAt,
	}
	if t.Changed() {
		out.State = "changed"
	}
	return out
}
