package extauthz

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// Fields of the dynamic metadata that Check's answer carries, in the namespace
// of Envoy's ext_authz filter. xds reads all but note.
const (
	metaNamespace = "envoy.filters.http.ext_authz"
	metaGuard     = "guard"  // one of the marks below, always there
	metaAddress   = "dst"    // ip:port of the upstream
	metaHost      = "host"   // its authority
	metaPath      = "path"   // its path
	metaOrigin    = "origin" // the browser's, allowed; not there without one
	metaExpose    = "expose" // what a page may read of the answer; with origin
	metaID        = "id"     // of a single request, as JSON: Envoy's own answers echo it
	metaNote      = "note"   // what Guard needs, below
)

// Marks say when Guard sees the answer.
const (
	markFaults = "0"    // only when it is not plain JSON with a status that may pass
	markNone   = "none" // the same, but a bare 202 is as good as JSON: no answer is due
	markSeal   = "seal" // always: it may open a session
	markAll    = "all"  // always
)

// note is what Check tells Guard about a request, through Envoy and nobody
// else. Guard trusts it as it trusts Check.
type note struct {
	Request    string            `json:"r"`
	Server     identity.ServerID `json:"s"`
	Credential string            `json:"c"`           // the access token's id
	Principal  []byte            `json:"p"`           // identity.Principal.Digest
	Transport  jsonrpc.Transport `json:"t"`           //
	Due        bool              `json:"a,omitzero"`  // an answer with a body is due: an empty one is none
	Expires    int64             `json:"e,omitzero"`  // of the credential, unix seconds; 0: never
	Version    string            `json:"v,omitzero"`  // asked for by initialize
	Address    netip.AddrPort    `json:"d,omitzero"`  // the upstream's
	ID         jsontext.Value    `json:"id,omitzero"` // of a single request
	Checked    int64             `json:"k"`           // when Check decided, unix milliseconds
}

func (n *note) text() (string, error) {
	out, err := json.Marshal(n)
	if err != nil {
		return "", fmt.Errorf("writing the note for guard: %w", err)
	}
	return string(out), nil
}

// noteOf reads the note of an answer. Answers that Envoy makes itself before
// Check has allowed anything have none.
func noteOf(metadata map[string]*structpb.Struct) (mark string, n *note, err error) {
	fields := metadata[metaNamespace].GetFields()
	text := fields[metaNote].GetStringValue()
	if text == "" {
		return "", nil, nil
	}
	n = new(note)
	if err := json.Unmarshal([]byte(text), n); err != nil {
		return "", nil, fmt.Errorf("reading check's note: %w", err)
	}
	if len(n.Principal) != 16 {
		return "", nil, fmt.Errorf("reading check's note: the principal has %d bytes", len(n.Principal))
	}
	return fields[metaGuard].GetStringValue(), n, nil
}

func (n *note) expires() time.Time {
	if n.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(n.Expires, 0)
}
