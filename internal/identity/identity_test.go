package identity_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

const good = "0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081"

func TestParseServerID(t *testing.T) {
	tests := []struct {
		name string
		text string
		want error
	}{
		{"lower case", good, nil},
		{"all zero", "00000000-0000-0000-0000-000000000000", nil},
		{"empty", "", identity.ErrServerID},
		{"upper case", strings.ToUpper(good), identity.ErrServerID},
		{"one letter in upper case", strings.Replace(good, "f", "F", 1), identity.ErrServerID},
		{"braces", "{" + good + "}", identity.ErrServerID},
		{"a URN", "urn:uuid:" + good, identity.ErrServerID},
		{"no hyphens", strings.ReplaceAll(good, "-", ""), identity.ErrServerID},
		{"a hyphen elsewhere", "0190b6a17-f3e-4c1d-9a2b-3c4d5e6f7081", identity.ErrServerID},
		{"a hyphen for a digit", "0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f708-", identity.ErrServerID},
		{"a letter that is no digit", "0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f708g", identity.ErrServerID},
		{"one digit less", good[:35], identity.ErrServerID},
		{"one digit more", good + "0", identity.ErrServerID},
		{"a slash behind", good + "/", identity.ErrServerID},
		{"a space in front", " " + good[:35], identity.ErrServerID},
		{"beyond ASCII", "０190b6a1-7f3e-4c1d-9a2b-3c4d5e6f70", identity.ErrServerID},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id, err := identity.ParseServerID(tt.text)
			if !errors.Is(err, tt.want) {
				t.Fatalf("ParseServerID = %v, want %v", err, tt.want)
			}
			if err != nil && !id.IsZero() {
				t.Errorf("an id beside the error: %v", id)
			}
			if err == nil && id.String() != tt.text {
				t.Errorf("String = %q", id)
			}
		})
	}
}

func TestNewServerIDIsAVersion4UUID(t *testing.T) {
	seen := make(map[identity.ServerID]bool)
	for range 1000 {
		id := identity.NewServerID()
		parsed, err := uuid.Parse(id.String())
		if err != nil || parsed.Version() != 4 || parsed.Variant() != uuid.RFC4122 {
			t.Fatalf("%s: version %v, variant %v, %v", id, parsed.Version(), parsed.Variant(), err)
		}
		seen[id] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d different ids", len(seen))
	}
}

func TestServerIDInJSON(t *testing.T) {
	var id identity.ServerID
	if err := json.Unmarshal([]byte(`"`+good+`"`), &id); err != nil {
		t.Fatal(err)
	}
	if encoded, err := json.Marshal(id); err != nil || string(encoded) != `"`+good+`"` {
		t.Errorf("%s, %v", encoded, err)
	}
	before := id
	if err := json.Unmarshal([]byte(`"`+strings.ToUpper(good)+`"`), &id); err == nil || id != before {
		t.Errorf("upper case: %v, %v", id, err)
	}
}

func TestDigestDoesNotChange(t *testing.T) {
	server, err := identity.ParseServerID(good)
	if err != nil {
		t.Fatal(err)
	}
	p := identity.Principal{Kind: identity.KindAccessToken, Subject: "tok-1", Server: server}
	digest := p.Digest()
	// Sessions sealed by the last release carry it: another value ends them all.
	if got, want := hex.EncodeToString(digest[:]), "38fe54a599d8d74dabb35f1f18438d09"; got != want {
		t.Errorf("Digest = %s, want %s", got, want)
	}
}

func TestDigestNamesEachPart(t *testing.T) {
	part := rapid.StringN(0, 12, -1)
	draw := rapid.Custom(func(t *rapid.T) identity.Principal {
		return identity.Principal{
			Kind:    identity.Kind(part.Draw(t, "kind")),
			Issuer:  part.Draw(t, "issuer"),
			Subject: part.Draw(t, "subject"),
			Client:  part.Draw(t, "client"),
			Server:  identity.ServerID{rapid.Byte().Draw(t, "server")},
			Name:    part.Draw(t, "name"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		if rapid.Bool().Draw(t, "same") {
			b = a
			b.Name = "another name"
		}
		named := a
		named.Name = b.Name
		if same := named == b; (a.Digest() == b.Digest()) != same {
			t.Fatalf("equal is %v for %+v and %+v", same, a, b)
		}
	})
}

func TestDigestRejectsPartsThatMove(t *testing.T) {
	a := identity.Principal{Issuer: "ab", Subject: "c"}
	for _, b := range []identity.Principal{
		{Issuer: "a", Subject: "bc"}, {Issuer: "abc"}, {Subject: "abc"}, {Issuer: "ab", Client: "c"}, {Kind: "ab", Subject: "c"},
	} {
		if a.Digest() == b.Digest() {
			t.Errorf("%+v and %+v have one digest", a, b)
		}
	}
}

func FuzzParseServerID(f *testing.F) {
	f.Add(good)
	f.Add(strings.ToUpper(good))
	f.Add("0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f708-")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := identity.ParseServerID(text)
		reference, refErr := uuid.Parse(text)
		want := refErr == nil && reference.String() == text
		if (err == nil) != want {
			t.Fatalf("ParseServerID(%q) = %v; the reference says %v", text, err, refErr)
		}
		if err == nil && (id.String() != text || [16]byte(reference) != [16]byte(id)) {
			t.Errorf("%q became %s", text, id)
		}
	})
}
