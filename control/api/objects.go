package api

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// List is one page. Next is the cursor of the following one, "" at the end.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitzero"`
}

// Server is one MCP server as the API shows it.
type Server struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Enabled        bool              `json:"enabled"`
	MCP            string            `json:"mcp,omitzero"`
	RPC            string            `json:"rpc,omitzero"`
	CA             string            `json:"ca,omitzero"` // PEM; absent: system roots
	Eras           []string          `json:"eras"`
	AllowedOrigins []string          `json:"allowed_origins"`
	Labels         map[string]string `json:"labels"`
	Limits         Limits            `json:"limits"`
	Batches        bool              `json:"batches"`
	Denials        string            `json:"denials"`      // "mcp" or "http"
	HeaderNames    []string          `json:"header_names"` // values never come back
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`
	Revision       int64             `json:"revision"`

	Grants          jsontext.Value   `json:"grants,omitzero"`           // array of Grant; absent: nobody was named
	PolicyData      jsontext.Value   `json:"policy_data,omitzero"`      // the operator's own, for policies
	RecordArguments *RecordArguments `json:"record_arguments,omitzero"` // absent: no argument value is recorded
	ToolChanges     string           `json:"tool_changes"`              // "alarm" or "deny"
}

// RecordArguments lets decision records carry the values of arguments.
type RecordArguments struct {
	Mask        []string `json:"mask"`         // JSON pointers into arguments, * for any key or index
	KeepSeconds int64    `json:"keep_seconds"` // then control drops the values
}

// Limits of one server.
type Limits struct {
	MaxBody          int   `json:"max_body"` // bytes
	CallLimitSeconds int64 `json:"call_limit_seconds"`
}

// Applied says whether the whole fleet runs a change. When it does not, the
// change is stored all the same, and Reason says who refused it or is late.
type Applied struct {
	Applied bool   `json:"applied"`
	Reason  string `json:"reason,omitzero"`
}

// ChangedServer answers a create, an update and an enable. Revocation stands
// in the answer to an update, which may have taken rights away.
type ChangedServer struct {
	Server
	Applied
	Revocation *Revocation `json:"revocation,omitzero"`
	// HeadersDropped names stored headers that were given up because an
	// upstream is another party now.
	HeadersDropped []string `json:"headers_dropped,omitempty"`
}

// DisabledServer answers a disable.
type DisabledServer struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"`
	Applied
	Revocation Revocation `json:"revocation"`
}

// Deleted answers a delete.
type Deleted struct {
	ID         string     `json:"id"`
	Revocation Revocation `json:"revocation"`
}

// Revocation says how what was ended was ended. A missing replica did not
// confirm; its lease is over, so it refuses everything until it has caught up.
type Revocation struct {
	Replicas          int      `json:"replicas"`
	ReplicasConfirmed int      `json:"replicas_confirmed"`
	Missing           []string `json:"missing"`
	StreamsEnded      int64    `json:"streams_ended"`
	Milliseconds      int64    `json:"milliseconds"`
}

// Token is one access token. Token, its value, is only in the answer that
// made it. Absent Scopes: not narrowed.
type Token struct {
	ID         string    `json:"id"`
	ServerID   string    `json:"server_id"`
	Name       string    `json:"name"`
	Scopes     []string  `json:"scopes,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	Token      string    `json:"token,omitzero"`
}

func serverObject(s store.Server) Server {
	denials := denialsMCP
	if s.LiteralDenials {
		denials = denialsHTTP
	}
	var eras []string
	if s.Legacy {
		eras = append(eras, eraLegacy)
	}
	if s.Modern {
		eras = append(eras, eraModern)
	}
	return Server{
		ID: s.ID.String(), Name: s.Name, Enabled: s.Enabled, MCP: s.MCP, RPC: s.RPC, CA: s.CA, Eras: eras,
		AllowedOrigins: s.AllowedOrigins, Labels: s.Labels,
		Limits:  Limits{s.Limits.MaxBody, int64(s.Limits.CallLimit / time.Second)},
		Batches: s.Batches, Denials: denials, HeaderNames: s.HeaderNames,
		CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(), Revision: s.Revision,
		Grants: s.Grants, PolicyData: s.PolicyData, RecordArguments: recordArgumentsObject(s.RecordArguments),
		ToolChanges: s.ToolChanges,
	}
}

func recordArgumentsObject(r *store.RecordArguments) *RecordArguments {
	if r == nil {
		return nil
	}
	return &RecordArguments{Mask: r.Mask, KeepSeconds: int64(r.Keep / time.Second)}
}

func tokenObject(t store.AccessToken) Token {
	out := Token{ID: t.ID, ServerID: t.Server.String(), Name: t.Name, CreatedAt: t.CreatedAt.UTC()}
	if t.Narrowed {
		out.Scopes = t.Scopes
	}
	if !t.ExpiresAt.IsZero() {
		out.ExpiresAt = t.ExpiresAt.UTC()
	}
	if !t.LastUsedAt.IsZero() {
		out.LastUsedAt = t.LastUsedAt.UTC()
	}
	return out
}

func revocationObject(r revocation.Result) Revocation {
	return Revocation{
		Replicas: r.Replicas, ReplicasConfirmed: r.Confirmed, Missing: r.Missing,
		StreamsEnded: r.StreamsEnded, Milliseconds: r.Took.Milliseconds(),
	}
}
