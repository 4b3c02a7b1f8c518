package api

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// What a server's grants may be.
const (
	maxGrants    = 256
	maxTools     = 64  // of one grant
	maxToolName  = 256 // characters
	maxPrincipal = 256 // characters of one part
)

// Grant says who may use which tools of a server. Policies see it as one item
// of input.server.grants.
type Grant struct {
	Principal GrantPrincipal `json:"principal"`
	Tools     []string       `json:"tools"` // names; with * at its end, whatever begins so
}

// GrantPrincipal names the parts that all have to be the caller's. What is
// absent may be anything: without a part it is everybody.
type GrantPrincipal struct {
	Kind   string `json:"kind,omitzero"`
	ID     string `json:"id,omitzero"`
	Client string `json:"client,omitzero"`
	User   string `json:"user,omitzero"`
	Issuer string `json:"issuer,omitzero"`
}

// Grants are those of one server. An absent list says nothing about who may use
// which tool, and the standard policy then allows them all; an empty one names
// nobody.
type Grants struct {
	Grants   jsontext.Value `json:"grants,omitzero"` // array of Grant
	Revision int64          `json:"revision"`        // of the server
}

// ChangedGrants answers a change of them.
type ChangedGrants struct {
	Grants
	Applied
	Revocation Revocation `json:"revocation"`
}

// grantFields is a Grant as it comes in. What it lacks must not widen it, so a
// part that is empty or null is a fault, and everybody is written as {}.
type grantFields struct {
	Principal optional[principalFields] `json:"principal"`
	Tools     []string                  `json:"tools"`
}

type principalFields struct {
	Kind   optional[string] `json:"kind"`
	ID     optional[string] `json:"id"`
	Client optional[string] `json:"client"`
	User   optional[string] `json:"user"`
	Issuer optional[string] `json:"issuer"`
}

// grantsValue checks grants and returns them as they are stored; nil for null.
func grantsValue(f optional[[]grantFields], found *faults) jsontext.Value {
	if f.null {
		return nil
	}
	if len(f.value) > maxGrants {
		found.add("grants", "are more than %d", maxGrants)
		return nil
	}
	out := []Grant{}
	for i := range f.value {
		out = append(out, f.value[i].grant(element("grants", i), found))
	}
	text, err := json.Marshal(out, json.Deterministic(true))
	if err != nil {
		found.add("grants", "cannot be stored")
	}
	return text
}

func (g *grantFields) grant(field string, found *faults) Grant {
	out := Grant{Tools: g.Tools}
	if !g.Principal.given || g.Principal.null {
		found.add(field+".principal", "must be given; {} is everybody")
	}
	p := &g.Principal.value
	for _, part := range []struct {
		name string
		from optional[string]
		into *string
	}{
		{"kind", p.Kind, &out.Principal.Kind},
		{"id", p.ID, &out.Principal.ID},
		{"client", p.Client, &out.Principal.Client},
		{"user", p.User, &out.Principal.User},
		{"issuer", p.Issuer, &out.Principal.Issuer},
	} {
		*part.into = part.from.value
		if !part.from.given {
			continue
		}
		if err := checkGiven(part.from.value, maxPrincipal); err != nil {
			found.add(field+".principal."+part.name, "%v", err)
		}
	}
	checkKind(field+".principal", out.Principal, found)
	checkTools(field+".tools", g.Tools, found)
	return out
}

// checkKind wants the kind beside an id: another kind's ids are given by others,
// who could choose the one that is named here.
func checkKind(field string, p GrantPrincipal, found *faults) {
	switch {
	case p.Kind != "" && p.Kind != string(identity.KindAccessToken):
		found.add(field+".kind", "must be %s", identity.KindAccessToken)
	case p.ID != "" && p.Kind == "":
		found.add(field+".kind", "must be given beside id: ids of two kinds may be the same")
	}
}

func checkTools(field string, tools []string, found *faults) {
	if len(tools) == 0 || len(tools) > maxTools {
		found.add(field, "must be 1 to %d names; [\"*\"] is every tool", maxTools)
		return
	}
	for i, tool := range tools {
		if err := checkTool(tool); err != nil {
			found.add(element(field, i), "%v", err)
		} else if slices.Contains(tools[:i], tool) {
			found.add(element(field, i), "given twice")
		}
	}
}

func checkTool(tool string) error {
	if err := checkGiven(tool, maxToolName); err != nil {
		return err
	}
	if star := strings.IndexByte(tool, '*'); star >= 0 && star != len(tool)-1 {
		return errors.New("has a * that is not its last character")
	}
	return nil
}

func checkGiven(s string, limit int) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return checkText(s, limit)
}

func (a *api) showGrants(r *http.Request, _ []byte) (reply, error) {
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	return reply{body: Grants{Grants: srv.Grants, Revision: srv.Revision}}, nil
}

// replaceGrants is an update of the one field. A revision that is given has to
// be the server's: who read the grants and changes them then overwrites no
// change of others.
func (a *api) replaceGrants(r *http.Request, body []byte) (reply, error) {
	var in struct {
		Grants   optional[[]grantFields] `json:"grants"`
		Revision optional[int64]         `json:"revision"`
	}
	if err := decode(body, &in); err != nil {
		return reply{}, err
	}
	var found faults
	if !in.Grants.given {
		found.add("grants", "must be given; null takes them back, [] names nobody")
	}
	grants := grantsValue(in.Grants, &found)
	if err := found.err(); err != nil {
		return reply{}, err
	}
	id, err := serverID(r)
	if err != nil {
		return reply{}, err
	}
	asked := a.cfg.Now()
	srv, err := a.cfg.Store.UpdateServer(r.Context(), id, func(srv *store.Server) error {
		if in.Revision.given && in.Revision.value != srv.Revision {
			return &failure{status: http.StatusConflict, detail: "the server was changed by others meanwhile; nothing was changed: read its grants again"}
		}
		srv.Grants = grants
		return nil
	}, nil)
	if err != nil {
		return reply{}, notFound(err, errNoServer)
	}
	a.audit(r.Context(), "server updated", "server", srv.ID, "name", srv.Name, "revision", srv.Revision, "fields", []string{"grants"})
	applied, done, err := a.changed(r.Context(), srv, asked)
	return reply{body: ChangedGrants{Grants{srv.Grants, srv.Revision}, applied, done}}, err
}
