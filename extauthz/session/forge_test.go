package session_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/session"
)

func TestOpenRejectsEveryFlippedBit(t *testing.T) {
	s := sealer(t, 1, 0, 3) // flipping the key id must not find another key that opens
	raw, err := base64.RawURLEncoding.DecodeString(seal(t, s, sample()))
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(raw) * 8 {
		raw[bit/8] ^= 1 << (bit % 8)
		if _, err := s.Open(base64.RawURLEncoding.EncodeToString(raw), issued); !errors.Is(err, session.ErrForged) {
			t.Fatalf("bit %d: %v", bit, err)
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
}

func TestOpenRejectsEveryOtherCharacter(t *testing.T) {
	s := sealer(t, 1)
	text := seal(t, s, sample())
	for i := range len(text) {
		for c := range rune(256) {
			if byte(c) == text[i] {
				continue
			}
			changed := text[:i] + string([]byte{byte(c)}) + text[i+1:]
			if _, err := s.Open(changed, issued); !errors.Is(err, session.ErrForged) {
				t.Fatalf("%q for %q at %d: %v", c, text[i], i, err)
			}
		}
	}
}

func TestOpenRejectsOtherSpellings(t *testing.T) {
	s := sealer(t, 1)
	var text string // one whose last character has bits to spare
	for what := sample(); len(text)%4 != 2; what.Upstream += "x" {
		text = seal(t, s, what)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	tests := []struct{ name, text string }{
		{"nothing", ""},
		{"padding", text + "=="},
		{"a line break inside", text[:20] + "\n" + text[20:]},
		{"a carriage return at the end", text + "\r"},
		{"spaces around it", " " + text + " "},
		{"two joined by a comma", text + "," + text},
		{"more bytes", text + "AAAA"},
		{"fewer bytes", text[:len(text)-4]},
		{"its first half", text[:len(text)/2]},
		{"a key id alone", text[:6]},
		{"stray bits in the last character", text[:len(text)-1] + string(text[len(text)-1]+1)},
		{"base64 with the other alphabet", base64.RawStdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, len(raw)))},
		{"longer than any", strings.Repeat("A", 2048)},
		{"much longer than any", strings.Repeat(text, 10_000)},
	}
	if _, err := s.Open(text, issued); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := s.Open(tt.text, issued); !errors.Is(err, session.ErrForged) {
				t.Errorf("Open = %v", err)
			}
		})
	}
}

func TestOpenBoundsTheTextBeforeItDecodes(t *testing.T) {
	s := sealer(t, 1)
	long := strings.Repeat("A", 1<<20)
	if n := testing.AllocsPerRun(10, func() { _, _ = s.Open(long, issued) }); n != 0 {
		t.Errorf("%v allocations for a text that is too long", n)
	}
}

// golden are ids as clients hold them, sealed under key 1. A release that does
// not open them ends every session there is.
var golden = []struct {
	name, text string
	edit       func(*session.Session)
}{
	{
		"with an upstream id", "AAAAASr0tqW8TJ-M1kx8klwkGQye1i2S01eIx_IFfJydqt1KX17BrOntRrLQter1jcJIkabAuUMvZD6qRBz9QAnGWRHTifB0lWvriur3-yxIvHBJZa1NOxvxGTpJriTS1Kfmp-PMyStPx3sCszqEf89F3D_x",
		func(*session.Session) {},
	},
	{
		"without one", "AAAAAUV941qza9UjoNy-5_VlSA1szSGE303Uo0x4OWZjeKxfT9n5LtVM_v-k_iRxMLzcSTAXUKdouzVGUCpC_VuZN9x7Ue3kbA9K3bvWrnYZmLpaqBw4Mm9Td8jhzOO11sXYHKQ",
		func(s *session.Session) { s.Upstream, s.HasUpstream = "", false },
	},
	{
		"over IPv6", "AAAAAVAzBMlHZmxlr61EA81YLHZ8LghwZ6tcvIQZUogDFfby48Roj0wcLd-kiOYQScg-BSXR6hBFTMLZvo5HBhWOeh_SobyP_XMr3qEW3Eg1HILX6fC5_rlxA4nqBsLmix45rv-PMJLJGeg0x8c0gKkcru0sE6MROe0KZr-PO7p-",
		func(s *session.Session) { s.Addr = netip.MustParseAddrPort("[2001:db8::1]:443") },
	},
	{
		"an unknown version", "AAAAAbY5XjUw3TxyJm1TWHmt9iJMz6QeveiKwuW6cTIxuML5iBgwJjAxvNymeVeJkyL92HEm9KjQvbuB869vNH3xve3OwZTf3xq2EkveacPFGcj-bsVdnu0CjtrPY010lIx5gFkqvJmJyWv6HjWgGlDcG6NZjzLj-mRJGQwFuA",
		func(s *session.Session) { s.Version = "DRAFT-2030" },
	},
}

func TestOpenReadsOlderSeals(t *testing.T) {
	s := sealer(t, 2, 1)
	for _, tt := range golden {
		t.Run(tt.name, func(t *testing.T) {
			want := sample()
			tt.edit(&want)
			if got, err := s.Open(tt.text, issued); err != nil || got != want {
				t.Errorf("Open = %v, %v", got, err)
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	s := sealer(f, 1, 2)
	genuine := map[string]bool{}
	for _, tt := range golden {
		genuine[tt.text] = true
		f.Add(tt.text)
	}
	f.Add("")
	f.Add("AAAAAQ")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := s.Open(text, issued); (err == nil) != genuine[text] {
			t.Errorf("Open(%q) = %v, %v", text, got, err)
		}
	})
}
