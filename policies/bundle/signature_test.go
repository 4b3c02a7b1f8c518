package bundle_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	opa "github.com/open-policy-agent/opa/v1/bundle"

	"github.com/arbiter-gateway/arbiter/policies/bundle"
)

// signer signs as `opa sign` does; what a test changes makes it an attacker.
type signer struct {
	key     crypto.Signer
	alg     string
	scope   string
	hash    opa.HashingAlgorithm
	header  map[string]any
	claims  map[string]any
	leave   string // a file that it does not sign
	more    string // one that it signs without having it
	plugin  string
	twice   bool
	encoded func(message []byte) []byte // instead of signing
}

func pemOf(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (s signer) jwt(t testing.TB, entries []entry) string {
	t.Helper()
	hash := s.hash
	if hash == "" {
		hash = opa.SHA256
	}
	hasher, err := opa.NewSignatureHasher(hash)
	if err != nil {
		t.Fatal(err)
	}
	files := []opa.FileInfo{}
	for _, e := range entries {
		name := strings.TrimPrefix(e.name, "/")
		if name == s.leave {
			continue
		}
		var value any = []byte(e.content)
		if opa.IsStructuredDoc(name) {
			if err := json.Unmarshal([]byte(e.content), &value); err != nil {
				value = []byte(e.content)
			}
		}
		sum, err := hasher.HashFile(value)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, opa.NewFile(name, strings.ToLower(hexOf(sum)), string(hash)))
	}
	if s.more != "" {
		files = append(files, opa.NewFile(s.more, hexOf(make([]byte, 32)), string(hash)))
	}
	header, claims := map[string]any{"alg": s.alg, "kid": "any"}, map[string]any{"files": files}
	if s.scope != "" {
		claims["scope"] = s.scope
	}
	for name, value := range s.header {
		header[name] = value
	}
	for name, value := range s.claims {
		claims[name] = value
	}
	message := part(t, header) + "." + part(t, claims)
	sign := s.encoded
	if sign == nil {
		sign = func(message []byte) []byte { return s.sign(t, message) }
	}
	return message + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(message)))
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for _, x := range b {
		out.WriteByte(digits[x>>4])
		out.WriteByte(digits[x&15])
	}
	return out.String()
}

func part(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func (s signer) sign(t testing.TB, message []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(message)
	var out []byte
	var err error
	switch key := s.key.(type) {
	case *ecdsa.PrivateKey:
		a, b, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		size := (key.Curve.Params().BitSize + 7) / 8
		return append(a.FillBytes(make([]byte, size)), b.FillBytes(make([]byte, size))...)
	case ed25519.PrivateKey:
		return ed25519.Sign(key, message)
	case *rsa.PrivateKey:
		if s.alg == "PS256" {
			out, err = rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		} else {
			out, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// bundle is the archive with its signature.
func (s signer) bundle(t testing.TB, entries ...entry) []entry {
	t.Helper()
	list := map[string]any{"signatures": []string{s.jwt(t, entries)}}
	if s.twice {
		list["signatures"] = []string{s.jwt(t, entries), s.jwt(t, entries)}
	}
	if s.plugin != "" {
		list["plugin"] = s.plugin
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return append([]entry{{name: "/.signatures.json", content: string(text)}}, entries...)
}

const manifest42 = `{"revision":"r42","roots":["policy"],"metadata":{"version":42}}`

func signedFiles() []entry {
	return []entry{
		{name: "/data.json", content: `{"teams": {"a": ["x"]}}`},
		{name: "/policy.rego", content: rego},
		{name: "/README.md", content: "read me"},
		{name: "/.manifest", content: manifest42},
	}
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestVerifier(t *testing.T) {
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa2048 := rsaKey(t, 2048)
	for _, s := range []signer{
		{key: ecKey(t), alg: "ES256"},
		{key: edKey, alg: "EdDSA"},
		{key: rsa2048, alg: "RS256"},
		{key: rsa2048, alg: "PS256"},
		{key: ecKey(t), alg: "ES256", scope: "production"},
		{key: ecKey(t), alg: "ES256", hash: opa.SHA512},
	} {
		t.Run(s.alg+" "+s.scope+string(s.hash), func(t *testing.T) {
			v, err := bundle.NewVerifier(pemOf(t, s.key.Public()), s.scope)
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.Read(bytes.NewReader(tarGz(t, s.bundle(t, signedFiles()...)...)))
			if err != nil || got.Version != 42 || got.Name != "r42" || strings.Join(names(got.Bundle), " ") != "data.json policy.rego" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// What `opa sign` and `opa build` make is what is read.
func TestVerifierReadsOPAs(t *testing.T) {
	key := ecKey(t)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	b := opa.Bundle{
		Manifest: opa.Manifest{Revision: "r7", Roots: &[]string{""}, Metadata: map[string]any{"version": json.Number("7")}},
		Data:     map[string]any{"teams": map[string]any{"a": []any{"x"}}},
	}
	b.Modules = []opa.ModuleFile{{URL: "/policy.rego", Path: "/policy.rego", RelativePath: "/policy.rego", Raw: []byte(rego)}}
	if err := b.FormatModules(false); err != nil {
		t.Fatal(err)
	}
	if err := b.GenerateSignature(opa.NewSigningConfig(keyFile, "ES256", ""), "key1", false); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := opa.NewWriter(&out).Write(b); err != nil {
		t.Fatal(err)
	}
	v, err := bundle.NewVerifier(pemOf(t, key.Public()), "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Read(&out)
	if err != nil || got.Version != 7 || got.Name != "r7" || strings.Join(names(got.Bundle), " ") != "data.json policy.rego" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestVerifierRejects(t *testing.T) {
	key, other, rsa2048 := ecKey(t), ecKey(t), rsaKey(t, 2048)
	good := signer{key: key, alg: "ES256", scope: "production"}
	public := pemOf(t, key.Public())
	change := func(name, content string) []entry {
		entries := good.bundle(t, signedFiles()...)
		for i := range entries {
			if entries[i].name == name {
				entries[i].content = content
			}
		}
		return entries
	}
	from := func(change func(s *signer)) []entry {
		s := good
		change(&s)
		return s.bundle(t, signedFiles()...)
	}
	without := func(name string) []entry {
		var out []entry
		for _, e := range good.bundle(t, signedFiles()...) {
			if e.name != name {
				out = append(out, e)
			}
		}
		return out
	}
	with := func(manifest string) []entry {
		entries := signedFiles()
		entries[3].content = manifest
		return good.bundle(t, entries...)
	}
	hmacOf := func(secret []byte) func([]byte) []byte {
		return func(message []byte) []byte {
			h := hmac.New(sha256.New, secret)
			h.Write(message)
			return h.Sum(nil)
		}
	}
	for _, test := range []struct {
		name    string
		entries []entry
		is      error
		want    string
	}{
		{"unsigned", signedFiles(), bundle.ErrUnsigned, ""},
		{"signed elsewhere", append(signedFiles(), entry{name: "a/.signatures.json", content: "{}"}), bundle.ErrUnsigned, ""},
		{"no signatures", change("/.signatures.json", `{}`), nil, "exactly one"},
		{"an empty signature", change("/.signatures.json", `{"signatures":[""]}`), bundle.ErrSignature, "not a JWT"},
		{"a list of no texts", change("/.signatures.json", `{"signatures":{}}`), nil, ".signatures.json"},
		{"two signatures", from(func(s *signer) { s.twice = true }), nil, "exactly one"},
		{"a plugin", from(func(s *signer) { s.plugin = "mine" }), nil, "no plugin"},
		{"of another key", from(func(s *signer) { s.key = other }), bundle.ErrSignature, ""},
		{"of another key that it names", from(func(s *signer) {
			s.key = other
			s.header = map[string]any{"jwk": map[string]any{"kty": "EC"}, "kid": "arbiter"}
		}), bundle.ErrSignature, ""},
		{"of another kind of key", from(func(s *signer) { s.key, s.alg = rsa2048, "RS256" }), bundle.ErrSignature, `its algorithm is "RS256", the key is for ES256`},
		{"none", from(func(s *signer) { s.alg = "none"; s.encoded = func([]byte) []byte { return nil } }), bundle.ErrSignature, `its algorithm is "none"`},
		{"None", from(func(s *signer) { s.alg = "None"; s.encoded = func([]byte) []byte { return nil } }), bundle.ErrSignature, `its algorithm is "None"`},
		{"ES256 without a signature", from(func(s *signer) { s.encoded = func([]byte) []byte { return nil } }), bundle.ErrSignature, ""},
		{"zeros as a signature", from(func(s *signer) { s.encoded = func([]byte) []byte { return make([]byte, 64) } }), bundle.ErrSignature, ""},
		{"HMAC with the public key", from(func(s *signer) { s.alg = "HS256"; s.encoded = hmacOf(public) }), bundle.ErrSignature, `its algorithm is "HS256"`},
		{"HMAC said to be ES256", from(func(s *signer) { s.encoded = hmacOf(public) }), bundle.ErrSignature, ""},
		{"no algorithm", from(func(s *signer) { s.header = map[string]any{"alg": nil} }), bundle.ErrSignature, `its algorithm is ""`},
		{"a critical extension", from(func(s *signer) { s.header = map[string]any{"crit": []string{"b64"}, "b64": false} }), bundle.ErrSignature, "extension"},
		{"an end", from(func(s *signer) { s.claims = map[string]any{"exp": 4102444800} }), bundle.ErrSignature, "exp or nbf"},
		{"a beginning", from(func(s *signer) { s.claims = map[string]any{"nbf": 0} }), bundle.ErrSignature, "exp or nbf"},
		{"of another scope", from(func(s *signer) { s.scope = "test" }), bundle.ErrSignature, "scope"},
		{"without a scope", from(func(s *signer) { s.scope = "" }), bundle.ErrSignature, "scope"},
		{"MD5", from(func(s *signer) { s.hash = opa.MD5 }), bundle.ErrUncovered, `its "MD5"`},
		{"SHA-1", from(func(s *signer) { s.hash = opa.SHA1 }), bundle.ErrUncovered, `its "SHA-1"`},
		{"another policy", change("/policy.rego", "package policy\n\nallow := true\n"), bundle.ErrUncovered, "policy.rego"},
		{"one byte more", change("/policy.rego", rego+"\n"), bundle.ErrUncovered, "policy.rego"},
		{"other data", change("/data.json", `{"teams": {"a": ["y"]}}`), bundle.ErrUncovered, "data.json"},
		{"another document", change("/README.md", "no"), bundle.ErrUncovered, "README.md"},
		{"another version", change("/.manifest", strings.Replace(manifest42, "42}", "43}", 1)), bundle.ErrUncovered, ".manifest"},
		{"a file more", append(good.bundle(t, signedFiles()...), entry{name: "more.rego", content: rego}), bundle.ErrUncovered, `"more.rego" is not signed`},
		{"a document more", append(good.bundle(t, signedFiles()...), entry{name: "more.md", content: "x"}), bundle.ErrUncovered, `"more.md" is not signed`},
		{"a file that was left out of it", from(func(s *signer) { s.leave = "data.json" }), bundle.ErrUncovered, `"data.json" is not signed`},
		{"a manifest that was left out of it", from(func(s *signer) { s.leave = ".manifest" }), bundle.ErrUncovered, `".manifest" is not signed`},
		{"a file that is gone", without("/policy.rego"), bundle.ErrUncovered, `"policy.rego" is signed and not there`},
		{"a manifest that is gone", without("/.manifest"), bundle.ErrUncovered, `".manifest" is signed and not there`},
		{"a file that never was", from(func(s *signer) { s.more = "deny.rego" }), bundle.ErrUncovered, `"deny.rego" is signed and not there`},
		{"data in YAML", good.bundle(t, append(signedFiles(), entry{name: "/a/data.yaml", content: "a: 1"})...), bundle.ErrUncovered, "data.json"},
		{"no version", with(`{"revision":"r42"}`), nil, "a signed bundle has a version"},
		{"a version that is a text", with(`{"metadata":{"version":"42"}}`), nil, "metadata.version"},
		{"roots without policy", with(`{"roots":["x"],"metadata":{"version":42}}`), nil, "leave out policy"},
		{"a path out of it", append(good.bundle(t, signedFiles()...), entry{name: "../x.rego", content: rego}), nil, "no path inside"},
		{"two signatures' files", append(good.bundle(t, signedFiles()...), entry{name: ".signatures.json", content: "{}"}), nil, "twice"},
		{"a manifest's key twice", change("/.manifest", `{"metadata":{"version":43},"revision":"r42","roots":["policy"],"metadata":{"version":42}}`), nil, "duplicate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, err := bundle.NewVerifier(public, "production")
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.Read(bytes.NewReader(tarGz(t, test.entries...)))
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) || got.Files != nil || got.Version != 0 {
				t.Errorf("%+v, %v; want %v %q", got, err, test.is, test.want)
			}
		})
	}
}

// A bundle's data may be spelled otherwise than it was signed, and is the same.
func TestVerifierReadsDataSpelledOtherwise(t *testing.T) {
	s := signer{key: ecKey(t), alg: "ES256"}
	entries := s.bundle(t, signedFiles()...)
	for i := range entries {
		if entries[i].name == "/data.json" {
			entries[i].content = "{\"teams\":{\n\"a\":[\"\\u0078\"]}}"
		}
	}
	v, err := bundle.NewVerifier(pemOf(t, s.key.Public()), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Read(bytes.NewReader(tarGz(t, entries...))); err != nil {
		t.Error(err)
	}
}

func TestNewVerifierRejects(t *testing.T) {
	key := ecKey(t)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := pemOf(t, key.Public())
	for _, test := range []struct {
		name string
		key  []byte
		want string
	}{
		{"nothing", nil, "not PEM"},
		{"a shared secret", []byte("secret"), "not PEM"},
		{"a private key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), "the key is a PRIVATE KEY"},
		{"a certificate", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "the key is a CERTIFICATE"},
		{"no key in it", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}), "reading the key"},
		{"two keys", append(bytes.Clone(public), public...), "something follows the key"},
		{"P-224", pemOf(t, p224.Public()), "not ECDSA on P-256"},
		{"RSA of 1024 bits", pemOf(t, weakRSA(t)), "at least 2048 bits"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, err := bundle.NewVerifier(test.key, "")
			if v != nil || err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, %v; want %q", v, err, test.want)
			}
		})
	}
}

// weakRSA is a public key that Go would not make today.
func weakRSA(t *testing.T) *rsa.PublicKey {
	t.Helper()
	strong := rsaKey(t, 2048)
	return &rsa.PublicKey{N: strong.N.Rsh(strong.N, 1024), E: strong.E}
}
