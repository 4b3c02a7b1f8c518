package credential

import (
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// The refusals of Access.
const (
	ErrKind    Refusal = "not_an_access_token"
	ErrNotOurs Refusal = "not_a_token_of_this_gateway" // wrong length, MAC or checksum
)

// Access verifies that an access token was made by this gateway: format,
// checksum, and the MAC under a key that every replica knows, so an invented
// token costs no lookup. The digest is what the token is looked up by; whether
// it still exists, and for which server, is asked with it.
func (p Presented) Access(key token.MACKey) (token.Digest, error) {
	if p.Kind != AccessToken {
		return token.Digest{}, ErrKind
	}
	digest, err := token.Check(p.Text.Reveal(), token.Access, key)
	if err != nil {
		return token.Digest{}, ErrNotOurs
	}
	return digest, nil
}
