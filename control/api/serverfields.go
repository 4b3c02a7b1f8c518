package api

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// Spellings of a server's choices.
const (
	eraLegacy   = "legacy"
	eraModern   = "modern"
	denialsMCP  = "mcp"
	denialsHTTP = "http"
)

// serverFields is the body of a create and of an update. An update is an
// RFC 7396 patch: what is absent stays, null goes back to the default, objects
// are merged, arrays replaced.
type serverFields struct {
	Name           optional[string]                      `json:"name"`
	MCP            optional[string]                      `json:"mcp"`
	RPC            optional[string]                      `json:"rpc"`
	CA             optional[string]                      `json:"ca"`
	Eras           optional[[]string]                    `json:"eras"`
	AllowedOrigins optional[[]string]                    `json:"allowed_origins"`
	Labels         optional[map[string]optional[string]] `json:"labels"`
	Limits         optional[limitFields]                 `json:"limits"`
	Batches        optional[bool]                        `json:"batches"`
	Denials        optional[string]                      `json:"denials"`
	Headers        optional[[]headerField]               `json:"headers"`

	Grants          optional[[]grantFields]   `json:"grants"`
	PolicyData      optional[jsontext.Value]  `json:"policy_data"` // replaced as a whole
	RecordArguments optional[recordingFields] `json:"record_arguments"`
	ToolChanges     optional[string]          `json:"tool_changes"`
}

type limitFields struct {
	MaxBody          optional[int]   `json:"max_body"`
	CallLimitSeconds optional[int64] `json:"call_limit_seconds"`
}

// newServer is what a create starts from: every default.
func newServer() store.Server {
	return store.Server{
		Enabled: true, Legacy: true, Labels: map[string]string{},
		Limits: store.Limits{MaxBody: store.DefaultMaxBody, CallLimit: store.DefaultCallLimit},
	}
}

// edit sets what the body gives, and checks it. The headers are not part of it.
func (f *serverFields) edit(srv *store.Server) error {
	var found faults
	f.Name.into(&srv.Name, "")
	f.MCP.into(&srv.MCP, "")
	f.RPC.into(&srv.RPC, "")
	f.CA.into(&srv.CA, "")
	f.AllowedOrigins.into(&srv.AllowedOrigins, nil)
	f.Batches.into(&srv.Batches, false)
	f.editEras(srv, &found)
	f.editDenials(srv, &found)
	f.editLabels(srv)
	f.editLimits(srv, &found)
	f.editPolicy(srv, &found)
	checkServer(srv, &found)
	return found.err()
}

func (f *serverFields) editEras(srv *store.Server, found *faults) {
	if !f.Eras.given {
		return
	}
	eras := []string{eraLegacy}
	f.Eras.into(&eras, eras)
	srv.Legacy, srv.Modern = slices.Contains(eras, eraLegacy), slices.Contains(eras, eraModern)
	if len(eras) == 0 {
		found.add("eras", "at least one of legacy and modern")
	}
	for i, era := range eras {
		if era != eraLegacy && era != eraModern {
			found.add(element("eras", i), "must be legacy or modern")
		} else if slices.Contains(eras[:i], era) {
			found.add(element("eras", i), "given twice")
		}
	}
}

func (f *serverFields) editDenials(srv *store.Server, found *faults) {
	if !f.Denials.given {
		return
	}
	var denials string
	f.Denials.into(&denials, denialsMCP)
	srv.LiteralDenials = denials == denialsHTTP
	if denials != denialsMCP && denials != denialsHTTP {
		found.add("denials", "must be mcp or http")
	}
}

func (f *serverFields) editLabels(srv *store.Server) {
	labels := maps.Clone(srv.Labels) // the store's own map stays as it is when this fails
	if labels == nil || f.Labels.null {
		labels = map[string]string{}
	}
	for key, value := range f.Labels.value {
		if value.null {
			delete(labels, key)
		} else {
			labels[key] = value.value
		}
	}
	srv.Labels = labels
}

func (f *serverFields) editLimits(srv *store.Server, found *faults) {
	if f.Limits.null {
		srv.Limits = newServer().Limits
	}
	f.Limits.value.MaxBody.into(&srv.Limits.MaxBody, store.DefaultMaxBody)
	seconds := int64(srv.Limits.CallLimit / time.Second)
	f.Limits.value.CallLimitSeconds.into(&seconds, int64(store.DefaultCallLimit/time.Second))
	if seconds < minCallLimit || seconds > maxCallLimit {
		found.add("limits.call_limit_seconds", "must be %d to %d (24 h)", minCallLimit, maxCallLimit)
		return
	}
	srv.Limits.CallLimit = time.Duration(seconds) * time.Second
}

// names lists the fields that were given, for the log.
func (f *serverFields) names() []string {
	var out []string
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"name", f.Name.given},
		{"mcp", f.MCP.given},
		{"rpc", f.RPC.given},
		{"ca", f.CA.given},
		{"eras", f.Eras.given},
		{"allowed_origins", f.AllowedOrigins.given},
		{"labels", f.Labels.given},
		{"limits", f.Limits.given},
		{"batches", f.Batches.given},
		{"denials", f.Denials.given},
		{"headers", f.Headers.given},
		{"grants", f.Grants.given},
		{"policy_data", f.PolicyData.given},
		{"record_arguments", f.RecordArguments.given},
		{"tool_changes", f.ToolChanges.given},
	} {
		if field.given {
			out = append(out, field.name)
		}
	}
	return out
}

// element names one element of an array.
func element(field string, i int) string { return fmt.Sprintf("%s.%d", field, i) }
