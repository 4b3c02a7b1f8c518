// Package api is the JSON API of control: what the command line speaks over the
// admin socket, and later what pages and operators' tokens reach.
//
//	admin   CLI -> api: parse -> check -> store (one transaction) -> wait for the fleet -> answer
//
// It trusts whoever serves it to have said who is calling (WithCaller), and
// nothing that comes in the request: a request without a caller is refused,
// each field is checked before the store sees it, and all faults are named at
// once. Secrets only go in (an upstream's headers) or come out once (a new
// token's value); no error, log line or later answer holds one.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// Fleet is everything that runs what the store holds.
type Fleet interface {
	// Applied returns nil once Envoy and every connected replica run revision
	// or a later one, and have cut the streams that it ends. An error says who
	// refused it and why, or that ctx ended first; the change stays stored.
	Applied(ctx context.Context, revision int64) error
	// Confirmed returns when every replica listed after a change was committed
	// has confirmed it, or can accept nothing any more. An error says that ctx
	// ended first: the missing ones may still accept what the change ends.
	Confirmed(ctx context.Context, change revocation.Change) (revocation.Result, error)
}

// Config is what the API needs.
type Config struct {
	Store    *store.Store
	Fleet    Fleet
	Policies *policy.Keeper
	TokenMAC token.MACKey                          // under which access tokens are made
	Status   func(context.Context) (Status, error) // what doctor shows
	Log      *slog.Logger                          // one line per change
	Now      func() time.Time                      // default time.Now

	ApplyWait  time.Duration // longest wait of what only gives rights, default 5 s
	RevokeWait time.Duration // longest wait of what may take rights away, default 95 s: above four thirds of the longest lease
}

const (
	defaultApplyWait  = 5 * time.Second
	defaultRevokeWait = 95 * time.Second
)

type api struct {
	cfg     Config
	openapi []byte
	trying  chan struct{} // holds one token while a candidate is checked or tried
}

// New returns the handler of /api/v1. It is safe for use by many goroutines.
func New(c Config) (http.Handler, error) {
	if c.Store == nil || c.Fleet == nil || c.Policies == nil || c.Status == nil || c.Log == nil || c.TokenMAC == (token.MACKey{}) {
		return nil, errors.New("api: store, fleet, policies, status, log and token key must be given")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.ApplyWait == 0 {
		c.ApplyWait = defaultApplyWait
	}
	if c.RevokeWait == 0 {
		c.RevokeWait = defaultRevokeWait
	}
	document, err := openAPI()
	if err != nil {
		return nil, err
	}
	a := &api{cfg: c, openapi: document, trying: make(chan struct{}, 1)}
	return a.mux(), nil
}

// route is one line of the table. What all routes share is in serve.
type route struct {
	method, path string
	query        []string // keys it may have
	body         int      // takes a JSON body of at most so many bytes; 0: takes none
	serve        func(*api, *http.Request, []byte) (reply, error)
}

// routes is the whole API; openapi.yaml documents the same.
func routes() []route {
	const (
		servers = "/api/v1/servers"
		server  = servers + "/{id}"
		grants  = server + "/grants"
		tools   = server + "/tools"
		tokens  = server + "/tokens"
		token   = tokens + "/{token}"

		policy   = "/api/v1/policy"
		decision = "/api/v1/decisions/{id}"
	)
	return []route{
		{http.MethodGet, servers, []string{"name", "limit", "cursor"}, noBody, (*api).listServers},
		{http.MethodPost, servers, nil, smallBody, (*api).createServer},
		{http.MethodGet, server, nil, noBody, (*api).showServer},
		{http.MethodPatch, server, nil, smallBody, (*api).updateServer},
		{http.MethodDelete, server, nil, noBody, (*api).deleteServer},
		{http.MethodPost, server + "/disable", nil, noBody, (*api).disableServer},
		{http.MethodPost, server + "/enable", nil, noBody, (*api).enableServer},
		{http.MethodGet, grants, nil, noBody, (*api).showGrants},
		{http.MethodPut, grants, nil, smallBody, (*api).replaceGrants},
		{http.MethodGet, tools, []string{"name"}, noBody, (*api).listTools},
		{http.MethodDelete, tools, nil, noBody, (*api).forgetTools},
		{http.MethodPost, tools + "/approve", nil, smallBody, (*api).approveTools},
		{http.MethodGet, tokens, []string{"limit", "cursor"}, noBody, (*api).listTokens},
		{http.MethodPost, tokens, nil, smallBody, (*api).createToken},
		{http.MethodGet, token, nil, noBody, (*api).showToken},
		{http.MethodDelete, token, nil, noBody, (*api).deleteToken},
		{http.MethodGet, policy, []string{"files"}, noBody, (*api).showPolicy},
		{http.MethodPut, policy, nil, policyBody, (*api).replacePolicy},
		{http.MethodPost, policy + "/check", nil, policyBody, (*api).checkPolicy},
		{http.MethodPost, policy + "/try", nil, policyBody, (*api).tryPolicy},
		{http.MethodGet, decision, []string{"arguments"}, noBody, (*api).showDecision},
		{http.MethodGet, decision + "/explanation", nil, noBody, (*api).explainDecision},
		{http.MethodGet, "/api/v1/status", nil, noBody, (*api).showStatus},
		{http.MethodGet, "/api/v1/openapi.json", nil, noBody, (*api).showOpenAPI},
	}
}

// Routes lists the API as "METHOD /path/{parameter}".
func Routes() []string {
	var out []string
	for _, r := range routes() {
		out = append(out, r.method+" "+r.path)
	}
	return out
}

// mux mounts the table. A path without its method answers 405 with Allow,
// everything else 404, both as problem documents.
func (a *api) mux() http.Handler {
	mux := http.NewServeMux()
	allow := map[string][]string{}
	for _, r := range routes() {
		mux.Handle(r.method+" "+r.path, a.serve(r))
		allow[r.path] = append(allow[r.path], r.method)
	}
	for path, methods := range allow {
		mux.Handle(path, a.refuse(http.StatusMethodNotAllowed, http.Header{"Allow": {strings.Join(methods, ", ")}}))
	}
	mux.Handle("/", a.refuse(http.StatusNotFound, nil))
	return mux
}
