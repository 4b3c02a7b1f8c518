package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/extauthz/session"
	"github.com/arbiter-gateway/arbiter/internal/identity"
)

var (
	issued  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	expires = issued.Add(30 * 24 * time.Hour)
)

func key(id uint32) session.Key {
	return session.Key{ID: id, Secret: [32]byte{byte(id), byte(id >> 8), 0xfe}}
}

func sealer(t testing.TB, ids ...uint32) *session.Sealer {
	t.Helper()
	var keys []session.Key
	for _, id := range ids {
		keys = append(keys, key(id))
	}
	s, err := session.New(keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sample() session.Session {
	return session.Session{
		Server:      identity.ServerID{1, 2, 3},
		Principal:   principal("t1").Digest(),
		Upstream:    "upstream-session-1",
		HasUpstream: true,
		Addr:        netip.MustParseAddrPort("192.0.2.7:8080"),
		Version:     "2025-06-18",
		Issued:      issued,
		Expires:     expires,
	}
}

func principal(subject string) identity.Principal {
	return identity.Principal{Kind: identity.KindAccessToken, Subject: subject, Server: identity.ServerID{1, 2, 3}}
}

func seal(t testing.TB, s *session.Sealer, what session.Session) string {
	t.Helper()
	text, err := s.Seal(what)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func draw(t *rapid.T) session.Session {
	s := session.Session{
		Server:    identity.ServerID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "server")),
		Principal: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "principal")),
		Version: rapid.OneOf(
			rapid.SampledFrom([]string{"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 32), func(b []byte) string { return string(b) }),
		).Draw(t, "version"),
		Issued:  time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "issued"), 0).UTC(),
		Expires: time.Unix(rapid.Int64Range(issued.Unix()+1, 1<<40).Draw(t, "expires"), 0).UTC(),
	}
	port := rapid.Uint16().Draw(t, "port")
	if rapid.Bool().Draw(t, "v6") {
		a := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr")))
		s.Addr = netip.AddrPortFrom(a, port)
	} else {
		a := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr")))
		s.Addr = netip.AddrPortFrom(a, port)
	}
	if s.HasUpstream = rapid.Bool().Draw(t, "has upstream"); s.HasUpstream {
		visible := rapid.SliceOfN(rapid.ByteRange(0x21, 0x7e), 0, 1024)
		s.Upstream = string(visible.Draw(t, "upstream"))
	}
	return s
}

func TestOpenReturnsWhatWasSealed(t *testing.T) {
	s := sealer(t, 7)
	rapid.Check(t, func(t *rapid.T) {
		want := draw(t)
		text, err := s.Seal(want)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Upstream) <= 256 && len(text) > 512 {
			t.Fatalf("%d bytes for an upstream id of %d", len(text), len(want.Upstream))
		}
		for i := range len(text) {
			if text[i] < 0x21 || text[i] > 0x7e {
				t.Fatalf("not visible ASCII: %q", text)
			}
		}
		got, err := s.Open(text, issued)
		if err != nil || got != want {
			t.Fatalf("Open = %#v, %v; want %#v", got, err, want)
		}
	})
}

// The worst case: everything as long as it may be.
func TestSealKeepsTo512Bytes(t *testing.T) {
	what := sample()
	what.Upstream = strings.Repeat("~", 256)
	what.Version = strings.Repeat("v", 32)
	what.Addr = netip.MustParseAddrPort("[2001:db8::1]:65535")
	if text := seal(t, sealer(t, 1), what); len(text) > 512 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestSealRefuses(t *testing.T) {
	tests := []struct {
		name string
		edit func(*session.Session)
		want error
	}{
		{"nothing", func(*session.Session) {}, nil},
		{"an id of 1024 bytes", func(s *session.Session) { s.Upstream = strings.Repeat("x", 1024) }, nil},
		{"an id over 1024 bytes", func(s *session.Session) { s.Upstream = strings.Repeat("x", 1025) }, session.ErrUpstreamID},
		{"a space in the id", func(s *session.Session) { s.Upstream = "a b" }, session.ErrUpstreamID},
		{"a line break in the id", func(s *session.Session) { s.Upstream = "a\r\nx-admin: 1" }, session.ErrUpstreamID},
		{"DEL in the id", func(s *session.Session) { s.Upstream = "a\x7f" }, session.ErrUpstreamID},
		{"a NUL in the id", func(s *session.Session) { s.Upstream = "a\x00" }, session.ErrUpstreamID},
		{"an id beyond ASCII", func(s *session.Session) { s.Upstream = "é" }, session.ErrUpstreamID},
		{"an id of an upstream without sessions", func(s *session.Session) { s.HasUpstream = false }, session.ErrUpstreamID},
		{"a version over 32 bytes", func(s *session.Session) { s.Version = strings.Repeat("9", 33) }, session.ErrVersion},
		{"no address", func(s *session.Session) { s.Addr = netip.AddrPort{} }, session.ErrAddr},
		{"a zone", func(s *session.Session) { s.Addr = netip.MustParseAddrPort("[fe80::1%eth0]:80") }, session.ErrAddr},
	}
	s := sealer(t, 1)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			what := sample()
			tt.edit(&what)
			text, err := s.Seal(what)
			if !errors.Is(err, tt.want) || (err != nil) != (text == "") {
				t.Errorf("Seal = %q, %v; want %v", text, err, tt.want)
			}
		})
	}
}

func TestEmptyUpstreamIDIsNotNone(t *testing.T) {
	s := sealer(t, 1)
	for _, has := range []bool{true, false} {
		what := sample()
		what.Upstream, what.HasUpstream = "", has
		got, err := s.Open(seal(t, s, what), issued)
		if err != nil || got.HasUpstream != has || got.Upstream != "" {
			t.Errorf("HasUpstream = %v, %v; want %v", got.HasUpstream, err, has)
		}
	}
}

func TestOpenAtTheEnd(t *testing.T) {
	s := sealer(t, 1)
	text := seal(t, s, sample())
	tests := []struct {
		name string
		now  time.Time
		want error
	}{
		{"at issue", issued, nil},
		{"a replica whose clock is behind", issued.Add(-time.Minute), nil},
		{"the last moment", expires.Add(-time.Nanosecond), nil},
		{"the end", expires, session.ErrExpired},
		{"long after", expires.AddDate(1, 0, 0), session.ErrExpired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Open(text, tt.now)
			if !errors.Is(err, tt.want) || (err != nil) != (got == session.Session{}) {
				t.Errorf("Open = %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestOpenAfterKeysRotate(t *testing.T) {
	text := seal(t, sealer(t, 1), sample())
	tests := []struct {
		name string
		ids  []uint32
		want error
	}{
		{"the new key seals, the old one opens", []uint32{2, 1}, nil},
		{"the new key is not first yet", []uint32{1, 2}, nil},
		{"the old key is gone", []uint32{2}, session.ErrForged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := sealer(t, tt.ids...).Open(text, issued); !errors.Is(err, tt.want) {
				t.Errorf("Open = %v, want %v", err, tt.want)
			}
		})
	}
	rotated := seal(t, sealer(t, 2, 1), sample())
	if _, err := sealer(t, 1).Open(rotated, issued); !errors.Is(err, session.ErrForged) {
		t.Errorf("the first key did not seal: %v", err)
	}
}

func TestOpenRejectsAnotherSecretUnderTheSameID(t *testing.T) {
	text := seal(t, sealer(t, 1), sample())
	other, err := session.New([]session.Key{{ID: 1, Secret: [32]byte{9}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(text, issued); !errors.Is(err, session.ErrForged) {
		t.Errorf("Open = %v", err)
	}
}

func TestSealNeverRepeats(t *testing.T) {
	s := sealer(t, 1)
	seen := make(map[string]bool)
	for range 1000 {
		seen[seal(t, s, sample())] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d different texts", len(seen))
	}
}

func TestBelongsTo(t *testing.T) {
	opened := sample()
	other := principal("t1")
	other.Server = identity.ServerID{9}
	renamed := principal("t1")
	renamed.Name = "another name"
	tests := []struct {
		name   string
		server identity.ServerID
		who    identity.Principal
		want   error
	}{
		{"its own", opened.Server, principal("t1"), nil},
		{"a name decides nothing", opened.Server, renamed, nil},
		{"another server", identity.ServerID{9}, other, session.ErrOtherServer},
		{"another token", opened.Server, principal("t2"), session.ErrOtherPrincipal},
		{"another kind", opened.Server, identity.Principal{Kind: "oauth", Subject: "t1", Server: opened.Server}, session.ErrOtherPrincipal},
		{"nobody", opened.Server, identity.Principal{}, session.ErrOtherPrincipal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := opened.BelongsTo(tt.server, tt.who); !errors.Is(err, tt.want) {
				t.Errorf("BelongsTo = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestNewRefusesKeys(t *testing.T) {
	tests := []struct {
		name string
		keys []session.Key
		want error
	}{
		{"one", []session.Key{key(1)}, nil},
		{"none", nil, session.ErrKeys},
		{"one id twice", []session.Key{key(1), key(2), key(1)}, session.ErrKeys},
		{"a secret never set", []session.Key{key(1), {ID: 2}}, session.ErrKeys},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := session.New(tt.keys)
			if !errors.Is(err, tt.want) || (err != nil) != (s == nil) {
				t.Errorf("New = %v, %v; want %v", s, err, tt.want)
			}
		})
	}
}

func TestNothingPrintsAKeyOrAnUpstreamID(t *testing.T) {
	k := session.Key{ID: 1, Secret: [32]byte([]byte("CANARYCANARYCANARYCANARYCANARYCA"))}
	what := sample()
	what.Upstream = "CANARY"
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	for _, value := range []any{k, &k, []session.Key{k}, what, &what, struct{ S session.Session }{what}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		log.Info("x", "value", value)
	}
	if encoded, err := json.Marshal(k); err == nil {
		out.Write(encoded)
	}
	for _, canary := range []string{"CANARY", "67 65 78", "43414e", "67,65,78", "0x43, 0x41"} {
		if strings.Contains(out.String(), canary) {
			t.Errorf("%q in %s", canary, &out)
		}
	}
}
