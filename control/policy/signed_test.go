package policy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	opa "github.com/open-policy-agent/opa/v1/bundle"
)

// signer makes bundles as `opa build` and `opa sign` do.
type signer struct {
	t       *testing.T
	private ed25519.PrivateKey
	public  []byte // PEM
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{t, private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}
}

func filesOf(version int, text string) map[string]string {
	return map[string]string{".manifest": fmt.Sprintf(`{"revision": "v%d", "metadata": {"version": %d}}`, version, version), "policy.rego": text}
}

// bundle is a signed archive.
func (s *signer) bundle(version int, text string) []byte {
	s.t.Helper()
	files := filesOf(version, text)
	files[".signatures.json"] = s.signatures(files)
	return archived(s.t, files)
}

func (s *signer) signatures(files map[string]string) string {
	s.t.Helper()
	hasher, err := opa.NewSignatureHasher(opa.SHA256)
	if err != nil {
		s.t.Fatal(err)
	}
	var signed []opa.FileInfo
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var value any = []byte(files[name])
		if opa.IsStructuredDoc(name) {
			if err := json.Unmarshal([]byte(files[name]), &value); err != nil {
				s.t.Fatal(err)
			}
		}
		sum, err := hasher.HashFile(value)
		if err != nil {
			s.t.Fatal(err)
		}
		signed = append(signed, opa.NewFile(name, hex.EncodeToString(sum), string(opa.SHA256)))
	}
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	message := part(map[string]any{"alg": "EdDSA"}) + "." + part(map[string]any{"files": signed})
	signature := ed25519.Sign(s.private, []byte(message))
	return `{"signatures": ["` + message + "." + base64.RawURLEncoding.EncodeToString(signature) + `"]}`
}

// archived is an archive of the files, signed or not.
func archived(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	members := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := members.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name])), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = strings.NewReader(files[name]).WriteTo(members)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := members.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
