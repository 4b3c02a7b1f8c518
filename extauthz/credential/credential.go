// Package credential takes exactly what a request presented to prove who calls.
//
// It is the second step of a request: header in, one credential out, or none,
// or a refusal; it never guesses between two. What it returns is still only a
// claim: each kind of credential has a file of its own that verifies it.
//
// Nothing in a header is trusted. Envoy joins several Authorization headers
// with a comma, which is why a comma is a refusal.
package credential

import (
	"strings"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// Kind is what a presented text looks like.
type Kind string

// The kinds. None is the zero Kind.
const (
	None        Kind = ""
	AccessToken Kind = "access_token" // begins with arb_at_
	OAuthToken  Kind = "oauth_token"  // three base64url parts, as a JWS has (RFC 7515, section 7.1)
	Unknown     Kind = "unknown"      // a bearer token of no kind that this release knows
)

// Presented is what a request carried. The zero Presented is no credential.
// The text is secret; neither fmt nor slog nor JSON show it.
type Presented struct {
	Kind Kind
	Text secret.Text
}

// Refusal is why what was presented is not a credential. Its text is a stable
// reason, fit for the decision record; the caller learns none of it.
type Refusal string

// The refusals of Extract.
const (
	ErrSeveral Refusal = "several_credentials" // more than one header, or a comma
	ErrScheme  Refusal = "not_bearer"          // another scheme, or no token behind it
	ErrToken   Refusal = "malformed_bearer"    // not one space and 1 to 4096 characters of b64token
)

// Error implements error.
func (r Refusal) Error() string { return string(r) }

const (
	scheme   = "bearer"
	maxToken = 4096
	// b64token of RFC 6750, section 2.1, with "=" allowed anywhere.
	tokenChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="
)

// Extract reads the values of all Authorization headers, as received. No header
// is no credential and no error; anything but one well-formed bearer token
// (contract, section 2) is a Refusal.
func Extract(authorization []string) (Presented, error) {
	if len(authorization) == 0 {
		return Presented{}, nil
	}
	if len(authorization) > 1 || strings.Contains(authorization[0], ",") {
		return Presented{}, ErrSeveral
	}
	name, text, found := strings.Cut(authorization[0], " ")
	if !found || !strings.EqualFold(name, scheme) {
		return Presented{}, ErrScheme
	}
	if text == "" || len(text) > maxToken || strings.Trim(text, tokenChars) != "" {
		return Presented{}, ErrToken
	}
	return Presented{Kind: classify(text), Text: secret.New(text)}, nil
}

func classify(text string) Kind {
	switch {
	case strings.HasPrefix(text, string(token.Access)):
		return AccessToken
	case compactJWS(text):
		return OAuthToken
	default:
		return Unknown
	}
}

// compactJWS reports whether text has the three parts of a signed JWT.
func compactJWS(text string) bool {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return false
	}
	for _, part := range parts {
		if part == "" || strings.ContainsAny(part, "~+/=") {
			return false
		}
	}
	return true
}
