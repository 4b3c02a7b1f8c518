// Package token makes and checks the gateway's opaque secrets.
//
//	arb_at_ rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr mmmmmmmmmmm cccccc
//	        32 base62, random                11, MAC     6, CRC-32
//
// The MAC (HMAC-SHA-256, first 64 bits, under a key that every replica knows)
// lets a replica refuse an invented token without asking anybody. The CRC-32
// (IEEE, over everything before it) lets a secret scanner recognise one. Only
// the SHA-256 of the whole text is ever stored.
package token

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"

	"github.com/arbiter-gateway/arbiter/internal/secret"
)

// Prefix says what a token is for.
type Prefix string

// The prefixes in use.
const (
	Access Prefix = "arb_at_"
)

const (
	alphabet  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomLen = 32
	macLen    = 11
	sumLen    = 6
	bodyLen   = randomLen + macLen + sumLen
)

// MACKey is the 32 byte key under which tokens carry their MAC.
type MACKey [32]byte

// Digest is the SHA-256 of a whole token: what is stored and looked up.
type Digest [sha256.Size]byte

// ErrMalformed says that a text is not a token of the asked prefix, or not one
// that this gateway made.
var ErrMalformed = errors.New("not a token of this gateway")

// New makes a token: 190 random bits behind prefix.
func New(prefix Prefix, key MACKey) secret.Text {
	text := string(prefix) + randomText()
	text += base62(mac(key, text), macLen)
	text += base62(uint64(crc32.ChecksumIEEE([]byte(text))), sumLen)
	return secret.New(text)
}

// Check refuses a text that New did not make with the same prefix and key, and
// returns the digest of one that it did. The time it takes does not depend on
// how much of the MAC is right.
func Check(text string, prefix Prefix, key MACKey) (Digest, error) {
	body, found := strings.CutPrefix(text, string(prefix))
	if !found || len(body) != bodyLen || strings.Trim(body, alphabet) != "" {
		return Digest{}, ErrMalformed
	}
	signed, end := text[:len(prefix)+randomLen], len(text)-sumLen
	wantMAC := base62(mac(key, signed), macLen)
	wantSum := base62(uint64(crc32.ChecksumIEEE([]byte(text[:end]))), sumLen)
	if !hmac.Equal([]byte(text[len(signed):]), []byte(wantMAC+wantSum)) {
		return Digest{}, ErrMalformed
	}
	return DigestOf(text), nil
}

// DigestOf returns the SHA-256 of a token.
func DigestOf(text string) Digest { return sha256.Sum256([]byte(text)) }

func mac(key MACKey, text string) uint64 {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(text))
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// randomText draws 32 base62 characters without bias: bytes of 248 and above
// (4 times 62) are drawn again.
func randomText() string {
	out := make([]byte, 0, randomLen)
	var buf [2 * randomLen]byte
	for len(out) < randomLen {
		rand.Read(buf[:])
		for _, b := range buf {
			if b < 4*62 && len(out) < randomLen {
				out = append(out, alphabet[b%62])
			}
		}
	}
	return string(out)
}

func base62(n uint64, width int) string {
	out := make([]byte, width)
	for i := width - 1; i >= 0; i-- {
		out[i] = alphabet[n%62]
		n /= 62
	}
	return string(out)
}
