// Package session makes and opens the gateway's own Mcp-Session-Id.
//
// It is the fifth step of a request and the sealing step of an answer: Guard
// seals what an initialize settled, Check opens it on every request after
// that. The id is the only place where a session is kept, so every replica with
// the keys opens what another one sealed. It is not a credential: who calls is
// proven by other means, and BelongsTo compares the two.
//
// A text from outside is not trusted before the AEAD has verified it; what an
// upstream calls its session is bounded and checked before it is sealed.
package session

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// Why a session id is not accepted. A handshake fault is never more than a 404
// for the caller (contract, section 3): these are for the decision record.
var (
	ErrForged         = errors.New("session id was not sealed by this gateway")
	ErrExpired        = errors.New("session has expired")
	ErrOtherServer    = errors.New("session of another server")
	ErrOtherPrincipal = errors.New("session of another principal")
)

// What cannot be sealed.
var (
	ErrUpstreamID = errors.New("upstream session id is not visible ASCII of at most 1024 bytes")
	ErrVersion    = errors.New("protocol version is longer than 32 bytes")
	ErrAddr       = errors.New("upstream address is unset or has a zone")
)

// ErrKeys says that a list of keys cannot seal: it is empty, names one id
// twice, or has a secret that was never set.
var ErrKeys = errors.New("session keys need distinct ids and a secret each")

// Key seals and opens session ids.
type Key struct {
	ID     uint32
	Secret [32]byte
}

// Format implements fmt.Formatter, so that no verb prints the secret.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "session key %d", k.ID) }

// LogValue implements slog.LogValuer.
func (k Key) LogValue() slog.Value { return slog.Uint64Value(uint64(k.ID)) }

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "session key %d", k.ID), nil }

// Session is what an initialize settled.
type Session struct {
	Server      identity.ServerID
	Principal   [16]byte // identity.Principal.Digest of who initialised
	Upstream    string   `json:"-"` // the upstream's own session id, 0 to 1024 bytes 0x21 to 0x7E
	HasUpstream bool     // false: the upstream has no sessions ("" is an id, too)
	Addr        netip.AddrPort
	Version     string    // MCP revision asked for, any text of at most 32 bytes
	Issued      time.Time // whole seconds, as is Expires
	Expires     time.Time // not accepted from this moment on
}

// BelongsTo refuses a session that another principal opened, or on another
// server.
func (s Session) BelongsTo(server identity.ServerID, p identity.Principal) error {
	if s.Server != server {
		return ErrOtherServer
	}
	if s.Principal != p.Digest() {
		return ErrOtherPrincipal
	}
	return nil
}

// Format implements fmt.Formatter: the upstream's id stays out of every text.
func (s Session) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "session of server %s at %s until %s", s.Server, s.Addr, s.Expires.UTC().Format(time.RFC3339))
}

// LogValue implements slog.LogValuer.
func (s Session) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

// Sealer seals under its first key and opens under any of its keys. It is
// immutable and safe for concurrent use.
//
//	Mcp-Session-Id = base64url, without padding, of
//
//	key id   4  big endian; in the clear, authenticated
//	nonce   24  random
//	sealed   n  XChaCha20-Poly1305 of the fields drawn at encode
//	tag     16
//
// A text opens only if it is the one that Seal returned, byte for byte.
type Sealer struct {
	first uint32
	keys  map[uint32]cipher.AEAD
}

const (
	keyLen   = 4
	nonceLen = chacha20poly1305.NonceSizeX
	overhead = keyLen + nonceLen + chacha20poly1305.Overhead
)

// New returns a Sealer. The first key seals, all of them open.
func New(keys []Key) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, ErrKeys
	}
	s := &Sealer{first: keys[0].ID, keys: make(map[uint32]cipher.AEAD, len(keys))}
	for _, k := range keys {
		if _, twice := s.keys[k.ID]; twice || k.Secret == [32]byte{} {
			return nil, ErrKeys
		}
		aead, err := chacha20poly1305.NewX(k.Secret[:])
		if err != nil {
			return nil, err
		}
		s.keys[k.ID] = aead
	}
	return s, nil
}

// Seal returns the session id for a client: visible ASCII, at most 512 bytes
// when the upstream's id has at most 256. The errors are ErrUpstreamID,
// ErrVersion and ErrAddr.
func (s *Sealer) Seal(session Session) (string, error) {
	plain, err := encode(session)
	if err != nil {
		return "", err
	}
	raw := make([]byte, keyLen+nonceLen, overhead+len(plain))
	binary.BigEndian.PutUint32(raw, s.first)
	nonce := raw[keyLen:]
	rand.Read(nonce)
	raw = s.keys[s.first].Seal(raw, nonce, plain, associated(raw[:keyLen]))
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// Open returns what Seal sealed under one of the keys. The errors are ErrForged
// and, for a genuine id, ErrExpired.
func (s *Sealer) Open(text string, now time.Time) (Session, error) {
	if len(text) > maxText {
		return Session{}, ErrForged
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	// The decoder skips line breaks and ignores stray bits; Seal writes neither.
	if err != nil || len(raw) < overhead || base64.RawURLEncoding.EncodeToString(raw) != text {
		return Session{}, ErrForged
	}
	id, nonce, sealed := raw[:keyLen], raw[keyLen:keyLen+nonceLen], raw[keyLen+nonceLen:]
	aead, known := s.keys[binary.BigEndian.Uint32(id)]
	if !known {
		return Session{}, ErrForged
	}
	plain, err := aead.Open(nil, nonce, sealed, associated(id))
	if err != nil {
		return Session{}, ErrForged
	}
	session, err := decode(plain)
	if err != nil {
		return Session{}, err
	}
	if !now.Before(session.Expires) {
		return Session{}, ErrExpired
	}
	return session, nil
}

// associated binds the key id, and keeps a seal apart from anything else that
// might ever be made under the same key.
func associated(id []byte) []byte { return append([]byte("arbiter session id\x00"), id...) }
