package credential_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/credential"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

func TestExtractAccepts(t *testing.T) {
	long := strings.Repeat("x", 4096)
	tests := []struct {
		name   string
		header string
		want   credential.Kind
		text   string
	}{
		{"an access token", "Bearer arb_at_abc", credential.AccessToken, "arb_at_abc"},
		{"scheme in lower case", "bearer arb_at_abc", credential.AccessToken, "arb_at_abc"},
		{"scheme in any case", "bEArER arb_at_abc", credential.AccessToken, "arb_at_abc"},
		{"a prefix alone", "Bearer arb_at_", credential.AccessToken, "arb_at_"},
		{"dots behind the prefix", "Bearer arb_at_a.b.c", credential.AccessToken, "arb_at_a.b.c"},
		{"a JWT", "Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln-_", credential.OAuthToken, "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln-_"},
		{"a JWT without signature", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", credential.Unknown, "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."},
		{"an encrypted JWT", "Bearer a.b.c.d.e", credential.Unknown, "a.b.c.d.e"},
		{"a JWT with padding", "Bearer a=.b.c", credential.Unknown, "a=.b.c"},
		{"an operator token", "Bearer arb_op_abc", credential.Unknown, "arb_op_abc"},
		{"the prefix in upper case", "Bearer ARB_AT_abc", credential.Unknown, "ARB_AT_abc"},
		{"every character", "Bearer AZaz09-._~+/=", credential.Unknown, "AZaz09-._~+/="},
		{"the longest", "Bearer " + long, credential.Unknown, long},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := credential.Extract([]string{tt.header})
			if err != nil || got.Kind != tt.want || got.Text.Reveal() != tt.text {
				t.Errorf("Extract = %q %q, %v; want %q", got.Kind, got.Text.Reveal(), err, tt.want)
			}
		})
	}
}

func TestExtractWithoutHeaderIsNoCredential(t *testing.T) {
	for _, values := range [][]string{nil, {}} {
		got, err := credential.Extract(values)
		if err != nil || got != (credential.Presented{}) || got.Kind != credential.None {
			t.Errorf("Extract = %v, %v", got, err)
		}
	}
}

func TestExtractRejects(t *testing.T) {
	const good = "Bearer arb_at_abc"
	tests := []struct {
		name   string
		values []string
		want   credential.Refusal
	}{
		{"two headers", []string{good, good}, credential.ErrSeveral},
		{"a good and an empty header", []string{good, ""}, credential.ErrSeveral},
		{"two headers joined by Envoy", []string{good + "," + good}, credential.ErrSeveral},
		{"two headers joined with a space", []string{good + ", " + good}, credential.ErrSeveral},
		{"a comma at the end", []string{good + ","}, credential.ErrSeveral},
		{"a comma in front", []string{"," + good}, credential.ErrSeveral},
		{"an empty header", []string{""}, credential.ErrScheme},
		{"a space", []string{" "}, credential.ErrScheme},
		{"a scheme alone", []string{"Bearer"}, credential.ErrScheme},
		{"a token alone", []string{"arb_at_abc"}, credential.ErrScheme},
		{"another scheme", []string{"Basic arb_at_abc"}, credential.ErrScheme},
		{"a longer scheme", []string{"Bearers arb_at_abc"}, credential.ErrScheme},
		{"a space in front", []string{" " + good}, credential.ErrScheme},
		{"a tab between", []string{"Bearer\tarb_at_abc"}, credential.ErrScheme},
		{"a colon after the scheme", []string{"Bearer: arb_at_abc"}, credential.ErrScheme},
		{"a letter that folds to r in no alphabet", []string{"Beareʀ arb_at_abc"}, credential.ErrScheme},
		{"no token", []string{"Bearer "}, credential.ErrToken},
		{"two spaces", []string{"Bearer  arb_at_abc"}, credential.ErrToken},
		{"a space at the end", []string{good + " "}, credential.ErrToken},
		{"two tokens", []string{good + " arb_at_def"}, credential.ErrToken},
		{"a parameter", []string{good + ";x=1"}, credential.ErrToken},
		{"quotes", []string{`Bearer "arb_at_abc"`}, credential.ErrToken},
		{"a NUL", []string{"Bearer arb_at\x00_abc"}, credential.ErrToken},
		{"a line break", []string{good + "\r\nx-arbiter-server: 1"}, credential.ErrToken},
		{"beyond ASCII", []string{"Bearer arb_at_é"}, credential.ErrToken},
		{"invalid UTF-8", []string{"Bearer arb_at_\xff"}, credential.ErrToken},
		{"percent-encoding", []string{"Bearer arb_at_%41"}, credential.ErrToken},
		{"too long", []string{"Bearer " + strings.Repeat("x", 4097)}, credential.ErrToken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := credential.Extract(tt.values)
			if !errors.Is(err, tt.want) || got != (credential.Presented{}) {
				t.Errorf("Extract = %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	key := token.MACKey{1}
	ours := token.New(token.Access, key).Reveal()
	last := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(ours, "0")]
	tests := []struct {
		name string
		text string
		want error
	}{
		{"one of ours", ours, nil},
		{"another gateway's", token.New(token.Access, token.MACKey{2}).Reveal(), credential.ErrNotOurs},
		{"another checksum", ours[:len(ours)-1] + last, credential.ErrNotOurs},
		{"shortened", ours[:len(ours)-1], credential.ErrNotOurs},
		{"lengthened", ours + "0", credential.ErrNotOurs},
		{"another kind of ours", token.New("arb_op_", key).Reveal(), credential.ErrKind},
		{"a JWT", "eyJh.eyJz.c2ln", credential.ErrKind},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			presented, err := credential.Extract([]string{"Bearer " + tt.text})
			if err != nil {
				t.Fatal(err)
			}
			digest, err := presented.Access(key)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Access = %v, want %v", err, tt.want)
			}
			if want := (map[bool]token.Digest{true: token.DigestOf(tt.text)})[err == nil]; digest != want {
				t.Errorf("digest %x, want %x", digest, want)
			}
		})
	}
	if _, err := (credential.Presented{}).Access(key); !errors.Is(err, credential.ErrKind) {
		t.Errorf("Access of nothing = %v", err)
	}
}

func TestNothingPrintsThePresentedText(t *testing.T) {
	const canary = "arb_at_CANARY"
	presented, err := credential.Extract([]string{"Bearer " + canary})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("x", "presented", presented, "pointer", &presented)
	}
	hidden := struct{ p credential.Presented }{presented}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+verb, presented, &presented, hidden, []credential.Presented{presented})
	}
	encoded, err := json.Marshal(presented)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	if text := out.String(); strings.Contains(text, "CANARY") || strings.Contains(text, fmt.Sprintf("%x", "CANARY")) {
		t.Errorf("printed: %s", text)
	}
}

func FuzzExtract(f *testing.F) {
	for _, seed := range []string{
		"", "Bearer arb_at_abc", "bearer eyJh.eyJz.c2ln", "Bearer a,Bearer b", "Bearer  a", "Basic eDp5", "Bearer a b",
	} {
		f.Add(seed)
	}
	// The grammar once more, written the other way.
	grammar := regexp.MustCompile(`\A(?i:bearer) ([A-Za-z0-9._~+/=-]+)\z`)
	f.Fuzz(func(t *testing.T, header string) {
		want := matches(grammar, header)
		got, err := credential.Extract([]string{header})
		if (err == nil) != (want != "") || got.Text.Reveal() != want {
			t.Errorf("Extract(%q) = %q, %v; want %q", header, got.Text.Reveal(), err, want)
		}
		if (err == nil) == (got.Kind == credential.None) {
			t.Errorf("Extract(%q) is of kind %q", header, got.Kind)
		}
		if (got.Kind == credential.AccessToken) != strings.HasPrefix(want, "arb_at_") {
			t.Errorf("%q is of kind %q", want, got.Kind)
		}
	})
}

func matches(grammar *regexp.Regexp, header string) string {
	found := grammar.FindStringSubmatch(header)
	if found == nil || len(found[1]) > 4096 {
		return ""
	}
	return found[1]
}
