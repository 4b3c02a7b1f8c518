package extauthz

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// Fields of the dynamic metadata that Check's answer carries, in the namespace
// of Envoy's ext_authz filter. xds reads all but note.
const (
	metaNamespace = "envoy.filters.http.ext_authz"
	metaGuard     = "guard"    // one of the marks below, always there
	metaAddress   = "dst"      // ip:port of the upstream
	metaHost      = "host"     // its authority
	metaPath      = "path"     // its path
	metaOrigin    = "origin"   // the browser's, allowed; not there without one
	metaExpose    = "expose"   // what a page may read of the answer; with origin
	metaID        = "id"       // of a single request, as JSON: Envoy's own answers echo it
	metaNote      = "note"     // what Guard needs, below
	metaQuestion  = "question" // what Guard asks the policy again; see question
)

// Marks say when Guard sees the answer.
const (
	markFaults = "0"    // only when it is not plain JSON with a status that may pass
	markNone   = "none" // the same, but a bare 202 is as good as JSON: no answer is due
	markSeal   = "seal" // always: it may open a session
	markAll    = "all"  // always
	markList   = "list" // always: it may hold a list
)

// note is what Check tells Guard about a request, through Envoy and nobody
// else. Guard trusts it as it trusts Check.
//
// Every allow carries one, most are never read: it is small, and written
// without reflection. As base64url, integers big-endian:
//
//	0   version, 1
//	1   flags: 1 transport is /rpc, 2 an answer is due
//	2   server           16 bytes
//	18  principal        16
//	34  expires           8, unix seconds; 0: never
//	42  checked          16, generation and nanoseconds of revocation.Memory
//	58  address, request, credential, version: each 1 byte of length and its bytes
type note struct {
	Request    string
	Server     identity.ServerID
	Credential string   // the access token's id
	Principal  [16]byte // identity.Principal.Digest
	Transport  jsonrpc.Transport
	Due        bool  // an answer with a body is due: an empty one is none
	Expires    int64 // of the credential, unix seconds; 0: never
	Version    string
	Address    netip.AddrPort
	Checked    revocation.Memory // when Check began

	ID       jsontext.Value // of a single request; stands beside the note, as metaID
	Question string         // beside the note too, as metaQuestion; "": nothing is asked again
}

const (
	noteVersion  = 1
	noteRPC      = 1
	noteDue      = 2
	noteFixed    = 58
	noteTextMost = 255 // bytes
)

var (
	errNote     = errors.New("check's note is not one")
	errNoteText = errors.New("a text is too long for the note for guard")
)

func (n *note) text() (string, error) {
	var space, encoded [256]byte
	var address [32]byte
	where, err := n.Address.AppendBinary(address[:0])
	if err != nil {
		return "", fmt.Errorf("writing the note for guard: %w", err)
	}
	out := append(space[:0], noteVersion, n.flags())
	out = append(out, n.Server[:]...)
	out = append(out, n.Principal[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(n.Expires))
	out = binary.BigEndian.AppendUint64(out, n.Checked.Generation)
	out = binary.BigEndian.AppendUint64(out, uint64(n.Checked.Asked))
	for _, text := range []string{string(where), n.Request, n.Credential, n.Version} {
		if len(text) > noteTextMost {
			return "", errNoteText
		}
		out = append(out, byte(len(text)))
		out = append(out, text...)
	}
	return string(base64.RawURLEncoding.AppendEncode(encoded[:0], out)), nil
}

func (n *note) flags() (out byte) {
	if n.Transport == jsonrpc.RPC {
		out |= noteRPC
	}
	if n.Due {
		out |= noteDue
	}
	return out
}

// noteOf reads the note of an answer. Answers that Envoy makes itself before
// Check has allowed anything have none.
func noteOf(metadata map[string]*structpb.Struct) (mark string, n *note, err error) {
	fields := metadata[metaNamespace].GetFields()
	text := fields[metaNote].GetStringValue()
	if text == "" {
		return "", nil, nil
	}
	if n, err = parseNote(text); err != nil {
		return "", nil, err
	}
	if id := fields[metaID].GetStringValue(); id != "" {
		n.ID = jsontext.Value(id)
	}
	n.Question = fields[metaQuestion].GetStringValue()
	return fields[metaGuard].GetStringValue(), n, nil
}

// parseNote reads exactly what text writes, and nothing else: no line breaks
// either, which base64 steps over.
func parseNote(text string) (*note, error) {
	in, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") || len(in) < noteFixed || in[0] != noteVersion || in[1]&^(noteRPC|noteDue) != 0 {
		return nil, errNote
	}
	n := &note{
		Server: identity.ServerID(in[2:18]), Principal: [16]byte(in[18:34]), Transport: jsonrpc.MCP, Due: in[1]&noteDue != 0,
		Expires: int64(binary.BigEndian.Uint64(in[34:])),
		Checked: revocation.Memory{Generation: binary.BigEndian.Uint64(in[42:]), Asked: int64(binary.BigEndian.Uint64(in[50:]))},
	}
	if in[1]&noteRPC != 0 {
		n.Transport = jsonrpc.RPC
	}
	var address string
	rest := in[noteFixed:]
	for _, field := range []*string{&address, &n.Request, &n.Credential, &n.Version} {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return nil, errNote
		}
		end := 1 + int(rest[0])
		*field, rest = string(rest[1:end]), rest[end:]
	}
	if err := n.Address.UnmarshalBinary([]byte(address)); err != nil || len(rest) > 0 {
		return nil, errNote
	}
	return n, nil
}

func (n *note) expires() time.Time {
	if n.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(n.Expires, 0)
}
