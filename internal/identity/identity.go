// Package identity has the checked names of servers and principals.
//
// A value of these types was parsed once, at the border, and cannot be wrong:
// a raw string does not travel past it. Everything that compares who is
// calling compares these values, each part on its own.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// ServerID is the UUID of one MCP server behind the gateway.
type ServerID [16]byte

// ErrServerID says that a text is not a server id.
var ErrServerID = errors.New("not a UUID in lower case, like 0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081")

// NewServerID makes a random UUIDv4 (RFC 9562, section 5.4).
func NewServerID() ServerID {
	var id ServerID
	rand.Read(id[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// ParseServerID reads the 36 byte form with lower-case hexadecimal digits, the
// only one that a path of the gateway may carry.
func ParseServerID(s string) (ServerID, error) {
	var id ServerID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, ErrServerID
	}
	hexed := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	for i := range len(hexed) {
		if c := hexed[i]; c >= 'A' && c <= 'F' {
			return id, ErrServerID
		}
	}
	if _, err := hex.Decode(id[:], []byte(hexed)); err != nil {
		return ServerID{}, ErrServerID
	}
	return id, nil
}

// String returns the lower-case UUID.
func (id ServerID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// IsZero reports whether the id was never set.
func (id ServerID) IsZero() bool { return id == ServerID{} }

// MarshalText implements encoding.TextMarshaler.
func (id ServerID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ServerID) UnmarshalText(text []byte) error {
	parsed, err := ParseServerID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Kind is how a principal was proven.
type Kind string

// The kinds of principals.
const (
	KindAccessToken Kind = "access_token"
)

// Principal is who is calling and how it was proven. Two principals are the
// same when everything but the name is equal.
type Principal struct {
	Kind    Kind
	Issuer  string   // who vouches for Subject; "" for the gateway itself
	Subject string   // the access token's id
	Client  string   // the client that acts for Subject, "" without one
	Server  ServerID // the one server this principal may reach
	Name    string   // for people and logs; decides nothing
}

// Digest names the principal in 16 bytes, for sealing into a session.
func (p Principal) Digest() [16]byte {
	h := sha256.New()
	h.Write([]byte("arbiter principal v1\x00"))
	for _, part := range []string{string(p.Kind), p.Issuer, p.Subject, p.Client, string(p.Server[:])} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return [16]byte(h.Sum(nil)[:16])
}
