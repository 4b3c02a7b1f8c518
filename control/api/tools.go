package api

import (
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// Tool is what is remembered of one tool of a server. The definitions are shown
// when one tool is asked for by name.
type Tool struct {
	Name      string         `json:"name"`
	State     string         `json:"state"`    // approved, or changed: it waits for approval
	Approved  string         `json:"approved"` // SHA-256 of the approved definition
	Seen      string         `json:"seen"`     // of the one that was listed last
	FirstAt   time.Time      `json:"first_seen_at"`
	ChangedAt time.Time      `json:"changed_at,omitzero"`
	WasText   jsontext.Value `json:"approved_definition,omitzero"`
	IsText    jsontext.Value `json:"seen_definition,omitzero"`
}

// ToolsApproved is the answer of an approval.
type ToolsApproved struct {
	Approved int64 `json:"approved"` // how many had waited
	Applied
}

// ToolsForgotten is the answer of a delete.
type ToolsForgotten struct {
	Forgotten int64 `json:"forgotten"`
	Applied
}

// approveFields is the body of an approval.
type approveFields struct {
	Names optional[[]string]          `json:"names"` // absent: all that wait
	Seen  optional[map[string]string] `json:"seen"`  // name to the hash that somebody has looked at
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
	if name := r.URL.Query().Get("name"); name != "" {
		for _, tool := range tools {
			if tool.Name == name {
				return listOf([]store.Tool{tool}, "", toolWhole), nil
			}
		}
		tools = nil
	}
	return listOf(tools, "", toolObject), nil
}

// approveTools takes the definitions as they were listed last.
func (a *api) approveTools(r *http.Request, body []byte) (reply, error) {
	var fields approveFields
	if err := decode(body, &fields); err != nil {
		return reply{}, err
	}
	named, err := fields.named()
	if err != nil {
		return reply{}, err
	}
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	n, revision, err := a.cfg.Store.ApproveTools(r.Context(), srv.ID, named)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return reply{}, &failure{status: http.StatusNotFound, detail: "a name is no tool that this server has listed: nothing was approved"}
	case errors.Is(err, store.ErrToolMoved):
		return reply{}, &failure{status: http.StatusConflict, detail: "a tool was listed with another definition meanwhile: nothing was approved; look again"}
	case err != nil:
		return reply{}, err
	}
	a.audit(r.Context(), "tools approved", "server", srv.ID, "approved", n, "revision", revision)
	return reply{body: ToolsApproved{Approved: n, Applied: a.applied(r.Context(), revision)}}, nil
}

// named are the tools to approve; none: all.
func (f *approveFields) named() (map[string]*store.ToolHash, error) {
	var found faults
	if f.Names.given && len(f.Names.value) == 0 {
		found.add("names", "must name at least one tool; without it all that wait are approved")
	}
	if f.Seen.given && len(f.Seen.value) == 0 {
		found.add("seen", "must have at least one tool")
	}
	named := map[string]*store.ToolHash{}
	for _, name := range f.Names.value {
		named[name] = nil
	}
	for name, text := range f.Seen.value {
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) != len(store.ToolHash{}) {
			found.add("seen", "must hold hashes as they are listed: 64 hexadecimal digits")
			break
		}
		looked := store.ToolHash(hash)
		named[name] = &looked
	}
	return named, found.err()
}

func (a *api) forgetTools(r *http.Request, _ []byte) (reply, error) {
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	n, revision, err := a.cfg.Store.ForgetTools(r.Context(), srv.ID)
	if err != nil {
		return reply{}, err
	}
	a.audit(r.Context(), "tools forgotten", "server", srv.ID, "forgotten", n, "revision", revision)
	return reply{body: ToolsForgotten{Forgotten: n, Applied: a.applied(r.Context(), revision)}}, nil
}

func toolObject(t store.Tool) Tool {
	out := Tool{
		Name: t.Name, State: "approved", Approved: t.Approved.Hash.String(), Seen: t.Seen.Hash.String(),
		FirstAt: t.FirstAt, ChangedAt: t.ChangedAt,
	}
	if t.Changed() {
		out.State = "changed"
	}
	return out
}

func toolWhole(t store.Tool) Tool {
	out := toolObject(t)
	out.WasText, out.IsText = jsontext.Value(t.Approved.Text), jsontext.Value(t.Seen.Text)
	return out
}
