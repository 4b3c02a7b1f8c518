package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
	"github.com/arbiter-gateway/arbiter/policies"
)

const (
	maxScopes    = 64
	maxScopeName = 128 // bytes of a tool's name
	// maxExpiry bounds a token's life; what shall live longer has no expiry.
	maxExpiry = 10 * 365 * 24 * time.Hour
)

// tokenFields is the body of a token's create.
type tokenFields struct {
	Name      optional[string]    `json:"name"`
	Scopes    optional[[]string]  `json:"scopes"`
	ExpiresAt optional[time.Time] `json:"expires_at"`
	ExpiresIn optional[int64]     `json:"expires_in"` // seconds
}

func (a *api) listTokens(r *http.Request, _ []byte) (reply, error) {
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	page, err := pageOf(r)
	if err != nil {
		return reply{}, err
	}
	tokens, next, err := a.cfg.Store.Tokens(r.Context(), srv.ID, page)
	if err != nil {
		return reply{}, badCursor(err)
	}
	return listOf(tokens, next, tokenObject), nil
}

func (a *api) showToken(r *http.Request, _ []byte) (reply, error) {
	server, id, err := tokenID(r)
	if err != nil {
		return reply{}, err
	}
	row, err := a.cfg.Store.Token(r.Context(), server, id)
	if err != nil {
		return reply{}, notFound(err, errNoToken)
	}
	return reply{body: tokenObject(row)}, nil
}

// createToken makes a token and shows its value in this answer only.
func (a *api) createToken(r *http.Request, body []byte) (reply, error) {
	var fields tokenFields
	if err := decode(body, &fields); err != nil {
		return reply{}, err
	}
	srv, err := a.server(r)
	if err != nil {
		return reply{}, err
	}
	row, err := fields.token(a.cfg.Now())
	if err != nil {
		return reply{}, err
	}
	value := token.New(token.Access, a.cfg.TokenMAC)
	row.Server, row.Digest = srv.ID, token.DigestOf(value.Reveal())
	row, err = a.cfg.Store.CreateToken(r.Context(), row)
	if err != nil {
		return reply{}, notFound(err, errNoServer)
	}
	a.audit(r.Context(), "token created", "server", srv.ID, "credential", row.ID, "name", row.Name,
		"narrowed", row.Narrowed, "scopes", row.Scopes, "expires", row.ExpiresAt)
	out := tokenObject(row)
	out.Token = value.Reveal()
	return reply{status: http.StatusCreated, body: out, noStore: true}, nil
}

func (a *api) deleteToken(r *http.Request, _ []byte) (reply, error) {
	server, id, err := tokenID(r)
	if err != nil {
		return reply{}, err
	}
	asked := a.cfg.Now()
	entry, err := a.cfg.Store.DeleteToken(r.Context(), server, id)
	if err != nil {
		return reply{}, a.endedBefore(r.Context(), err, errNoToken)
	}
	a.audit(r.Context(), "token deleted", "server", server, "credential", id, "seq", entry.Seq)
	done, err := a.confirmed(r.Context(), revocation.Change{Seq: entry.Seq, What: entry.What(), Asked: asked})
	return reply{body: Deleted{ID: id, Revocation: done}}, err
}

// tokenID reads the path. A text that is no id at all is not asked for and not
// logged: it may be a token's value.
func tokenID(r *http.Request) (identity.ServerID, string, error) {
	server, err := serverID(r)
	if err != nil {
		return server, "", err
	}
	id := r.PathValue("token")
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return server, "", errNoToken
	}
	return server, id, nil
}

// token checks the fields and makes the row that they ask for, without server
// and digest.
func (f *tokenFields) token(now time.Time) (store.AccessToken, error) {
	var found faults
	row := store.AccessToken{Name: f.Name.value}
	if err := checkText(row.Name, maxName); err != nil {
		found.add("name", "%v", err)
	}
	row.Scopes, row.Narrowed = f.Scopes.value, f.Scopes.given && !f.Scopes.null
	if row.Narrowed {
		checkScopes(row.Scopes, &found)
	}
	row.ExpiresAt = f.expiry(now, &found)
	return row, found.err()
}

func (f *tokenFields) expiry(now time.Time, found *faults) time.Time {
	at, in := f.ExpiresAt.given && !f.ExpiresAt.null, f.ExpiresIn.given && !f.ExpiresIn.null
	switch {
	case at && in:
		found.add("expires_in", "only one of expires_at and expires_in may be given")
	case at && !f.ExpiresAt.value.After(now):
		found.add("expires_at", "must be in the future")
	case at && f.ExpiresAt.value.Sub(now) > maxExpiry:
		found.add("expires_at", "is more than 10 years away")
	case at:
		return f.ExpiresAt.value.UTC()
	case in && f.ExpiresIn.value < 1:
		found.add("expires_in", "must be in the future")
	case in && f.ExpiresIn.value > int64(maxExpiry/time.Second):
		found.add("expires_in", "is more than 10 years")
	case in:
		return now.UTC().Add(time.Duration(f.ExpiresIn.value) * time.Second)
	}
	return time.Time{}
}

// checkScopes allows the scopes of contract section 2. An empty list would
// read like "not narrowed" and is refused.
func checkScopes(scopes []string, found *faults) {
	if len(scopes) == 0 || len(scopes) > maxScopes {
		found.add("scopes", "must be 1 to %d; leave them out for a token that is not narrowed", maxScopes)
		return
	}
	for i, scope := range scopes {
		if err := checkScope(scope); err != nil {
			found.add(element("scopes", i), "%v", err)
		} else if slices.Contains(scopes[:i], scope) {
			found.add(element("scopes", i), "given twice")
		}
	}
}

func checkScope(scope string) error {
	switch scope {
	case policies.ScopeConnect, policies.ScopeTools, policies.ScopeBootstrap:
		return nil
	}
	tool, found := strings.CutPrefix(scope, policies.ScopeToolPrefix)
	if found && tool != "" && len(tool) <= maxScopeName && !strings.ContainsFunc(tool, notScopeChar) {
		return nil
	}
	return fmt.Errorf("must be %s, %s, %s<tool name> or %s", policies.ScopeConnect, policies.ScopeTools,
		policies.ScopeToolPrefix, policies.ScopeBootstrap)
}

// notScopeChar refuses what a scope cannot hold (RFC 6749, section 3.3).
func notScopeChar(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
