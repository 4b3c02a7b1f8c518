package api

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
)

//go:embed openapi.yaml
var openapiYAML []byte

// Status is what doctor shows of a running gateway.
type Status struct {
	Version      string              `json:"version"`
	Clock        time.Time           `json:"clock"`
	BaseURL      string              `json:"base_url"`
	Listeners    []string            `json:"listeners"` // ip:port of each connected Envoy's listener
	Database     DatabaseStatus      `json:"database"`
	Envoy        EnvoyStatus         `json:"envoy"`
	Replicas     []ReplicaStatus     `json:"replicas"`
	Certificates []CertificateStatus `json:"certificates"`
	Keys         KeyStatus           `json:"keys"`
	WaitingTools int64               `json:"waiting_tools"` // changed since they were approved, of all servers
	Problems     []string            `json:"problems"`      // what control itself found, one sentence each
}

// DatabaseStatus says where the truth is and how new.
type DatabaseStatus struct {
	Path     string `json:"path"`
	ID       string `json:"id"` // made once with the database
	Revision int64  `json:"revision"`
	Epoch    int64  `json:"epoch"`
	Seq      int64  `json:"seq"` // newest entry of the revocation log
}

// EnvoyStatus is every Envoy as the xDS server sees them.
type EnvoyStatus struct {
	Version         string `json:"version,omitzero"`
	Connected       int    `json:"connected"`
	Ready           bool   `json:"ready"` // at least one is connected, and all run the newest
	AppliedRevision int64  `json:"applied_revision"`
	Error           string `json:"error,omitzero"` // the last configuration that one of them refused, and why
}

// ReplicaStatus is one extauthz.
type ReplicaStatus struct {
	Name            string    `json:"name"`
	Connected       bool      `json:"connected"`
	AppliedRevision int64     `json:"applied_revision"`
	ConfirmedSeq    int64     `json:"confirmed_seq"`
	LeaseUntil      time.Time `json:"lease_until,omitzero"`
	LastError       string    `json:"last_error,omitzero"`
}

// CertificateStatus is one certificate that must not expire unnoticed.
type CertificateStatus struct {
	Name      string    `json:"name"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

// KeyStatus says which keys are there, never what they are.
type KeyStatus struct {
	Sealing  bool `json:"sealing"`   // of stored secrets
	TokenMAC bool `json:"token_mac"` // of access tokens
	Sessions int  `json:"sessions"`  // how many session keys
}

func (a *api) showStatus(r *http.Request, _ []byte) (reply, error) {
	status, err := a.cfg.Status(r.Context())
	if err != nil {
		return reply{}, fmt.Errorf("reading the status: %w", err)
	}
	return reply{body: status}, nil
}

// showDecision answers the decision record as it was written. Argument values
// that are kept beside it are shown only when they are asked for.
func (a *api) showDecision(r *http.Request, _ []byte) (reply, error) {
	values, err := wanted(r, "arguments")
	if err != nil {
		return reply{}, err
	}
	found, err := a.kept(r.Context(), r.PathValue("id"))
	if err != nil || !values || found.Arguments == nil {
		return reply{body: found.JSON}, err
	}
	body := bytes.TrimSuffix(found.JSON, []byte("}")) // an object with a decision_id
	body = fmt.Appendf(slices.Clip(body), `,"arguments":%s,"arguments_until":%q}`, found.Arguments, found.ArgumentsUntil.Format(time.RFC3339))
	return reply{body: body, noStore: true}, nil
}

func (a *api) showOpenAPI(*http.Request, []byte) (reply, error) {
	return reply{body: a.openapi}, nil
}

// openAPI is the document as JSON.
func openAPI() ([]byte, error) {
	out, err := yaml.YAMLToJSON(openapiYAML)
	if err != nil {
		return nil, fmt.Errorf("api: reading openapi.yaml: %w", err)
	}
	return out, nil
}
