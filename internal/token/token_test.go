package token_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/token"
)

var key = token.MACKey{1, 2, 3}

func TestNewHasTheDocumentedForm(t *testing.T) {
	form := regexp.MustCompile(`^arb_at_[0-9A-Za-z]{49}$`)
	seen := make(map[string]bool)
	for range 1000 {
		text := token.New(token.Access, key).Reveal()
		if !form.MatchString(text) || text != remake(text, key) {
			t.Fatalf("%q is not in the form", text)
		}
		seen[text] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d different tokens", len(seen))
	}
}

// remake computes MAC and checksum of a token's first 39 bytes from the contract
// alone, in other arithmetic.
func remake(text string, key token.MACKey) string {
	signed := text[:len("arb_at_")+32]
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(signed))
	out := signed + digits(binary.BigEndian.Uint64(h.Sum(nil)[:8]), 11)
	return out + digits(uint64(crc32.ChecksumIEEE([]byte(out))), 6)
}

func digits(n uint64, width int) string {
	text := new(big.Int).SetUint64(n).Text(62) // 0-9a-zA-Z
	swapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, text)
	return strings.Repeat("0", width-len(swapped)) + swapped
}

func TestCheck(t *testing.T) {
	text := token.New(token.Access, key).Reveal()
	invented := "arb_at_" + strings.Repeat("0", 49)
	tests := []struct {
		name string
		text string
		want error
	}{
		{"one of ours", text, nil},
		{"nothing", "", token.ErrMalformed},
		{"the prefix alone", "arb_at_", token.ErrMalformed},
		{"no prefix", text[7:], token.ErrMalformed},
		{"the prefix in upper case", "ARB_AT_" + text[7:], token.ErrMalformed},
		{"another prefix", "arb_rt_" + text[7:], token.ErrMalformed},
		{"another prefix made with this key", token.New("arb_rt_", key).Reveal(), token.ErrMalformed},
		{"another key", token.New(token.Access, token.MACKey{9}).Reveal(), token.ErrMalformed},
		{"a right checksum over an invented MAC", resum(invented), token.ErrMalformed},
		{"the MAC of another token", resum(text[:39] + token.New(token.Access, key).Reveal()[39:]), token.ErrMalformed},
		{"one character less", text[:len(text)-1], token.ErrMalformed},
		{"one character more", text + "0", token.ErrMalformed},
		{"a space behind", text + " ", token.ErrMalformed},
		{"a line break inside", text[:20] + "\n" + text[21:], token.ErrMalformed},
		{"beyond ASCII", text[:20] + "é" + text[22:], token.ErrMalformed},
		{"other case", text[:7] + swapCase(text[7:]), token.ErrMalformed},
		{"very long", text + strings.Repeat("0", 1<<20), token.ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			digest, err := token.Check(tt.text, token.Access, key)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Check = %v, want %v", err, tt.want)
			}
			if want := (map[bool]token.Digest{true: sha256.Sum256([]byte(tt.text))})[err == nil]; digest != want {
				t.Errorf("digest %x, want %x", digest, want)
			}
		})
	}
}

// resum gives a token a right checksum: what anybody can compute.
func resum(text string) string {
	body := text[:len(text)-6]
	return body + digits(uint64(crc32.ChecksumIEEE([]byte(body))), 6)
}

func swapCase(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' {
			return r - 32
		} else if r >= 'A' {
			return r + 32
		}
		return r
	}, text)
}

func TestCheckRejectsEveryOtherCharacter(t *testing.T) {
	text := token.New(token.Access, key).Reveal()
	for i := range len(text) {
		for c := range rune(256) {
			changed := text[:i] + string([]byte{byte(c)}) + text[i+1:]
			if _, err := token.Check(changed, token.Access, key); (err == nil) != (byte(c) == text[i]) {
				t.Fatalf("%q for %q at %d: %v", c, text[i], i, err)
			}
		}
	}
}

// Each of the 62 characters must be as likely at each place: chi-squared over
// 61 degrees of freedom stays below 150 but once in 10^9 runs.
func TestNewDrawsWithoutBias(t *testing.T) {
	const tokens = 5000
	counts := make(map[byte]int)
	for range tokens {
		for _, c := range []byte(token.New(token.Access, key).Reveal()[7:39]) {
			counts[c]++
		}
	}
	expected, chi := float64(tokens*32)/62, 0.0
	for _, n := range counts {
		chi += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	if len(counts) != 62 || chi > 150 {
		t.Errorf("%d characters, chi-squared %.0f", len(counts), chi)
	}
}

func TestNewDoesNotPrint(t *testing.T) {
	made := token.New(token.Access, key)
	if text := fmt.Sprintf("%v %+v %#v %s", made, made, made, made); strings.Contains(text, "arb_at_") {
		t.Error(text)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(token.New(token.Access, key).Reveal())
	f.Add("arb_at_" + strings.Repeat("0", 49))
	f.Add("arb_at_")
	f.Fuzz(func(t *testing.T, text string) {
		digest, err := token.Check(text, token.Access, key)
		form := len(text) == 56 && strings.HasPrefix(text, "arb_at_")
		if want := form && remake(text, key) == text; (err == nil) != want && alphanumeric(text) {
			t.Fatalf("Check(%q) = %v", text, err)
		}
		if (err == nil) != (digest != token.Digest{}) {
			t.Errorf("Check(%q) = %x, %v", text, digest, err)
		}
	})
}

func alphanumeric(text string) bool {
	return regexp.MustCompile(`^arb_at_[0-9A-Za-z]*$`).MatchString(text)
}
