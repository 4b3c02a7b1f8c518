package bundle

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	opa "github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/keys"

	"github.com/arbiter-gateway/arbiter/policies"
)

// Verifier accepts the bundles that one key signed for one scope.
type Verifier struct {
	pem        string
	algorithms []string // of the key; the first is named in messages
	scope      string
}

// Verified is a bundle whose every file the key's holder signed. The signature
// does not get old: an attacker may serve any bundle that was ever signed. So
// the caller has to refuse a Version below that of the bundle accepted last,
// and one that is equal with another Bundle.Revision; and has to keep both
// where they outlive the process.
type Verified struct {
	policies.Bundle

	Version int64  // metadata.version of the manifest, from 1
	Name    string // revision of the manifest, for people; may be empty
}

// What a signature has to be.
var (
	ErrUnsigned  = errors.New("the bundle is not signed: there is no " + signaturesFile)
	ErrSignature = errors.New("the bundle's signature is not of the configured key and scope")
	ErrUncovered = errors.New("the signature is not of these files")
)

const rsaBitsLeast = 2048

// NewVerifier reads a public key as PEM (PUBLIC KEY): ECDSA on P-256 or P-384,
// Ed25519, or RSA of 2048 bits and more. scope has to be that of the signature,
// also where it is empty. A key of any other kind is an error; so is a private
// one, which has no business here.
func NewVerifier(key []byte, scope string) (*Verifier, error) {
	block, rest := pem.Decode(key)
	switch {
	case block == nil:
		return nil, errors.New("the key is not PEM")
	case block.Type != "PUBLIC KEY":
		return nil, fmt.Errorf("the key is a %s; a PUBLIC KEY is needed", block.Type)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("something follows the key")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	algorithms, err := algorithmsOf(parsed)
	if err != nil {
		return nil, err
	}
	return &Verifier{pem: string(pem.EncodeToMemory(block)), algorithms: algorithms, scope: scope}, nil
}

// algorithmsOf are those that a key may be used with. The header of a signature
// chooses among them and can choose no other: no secret shared in an HMAC, no
// "none", nothing of another kind of key.
func algorithmsOf(key any) ([]string, error) {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return []string{"ES256"}, nil
		case elliptic.P384():
			return []string{"ES384"}, nil
		}
	case ed25519.PublicKey:
		return []string{"EdDSA"}, nil
	case *rsa.PublicKey:
		if key.N.BitLen() >= rsaBitsLeast {
			return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
		}
	}
	return nil, fmt.Errorf("the key is not ECDSA on P-256 or P-384, Ed25519, or RSA of at least %d bits", rsaBitsLeast)
}

// Read reads a signed OPA bundle, in this order: unpacked within its limits,
// signed by the key, each file as it was signed and none missing, a manifest
// with a version. Nothing is given of a bundle that fails at any of them.
func (v *Verifier) Read(from io.Reader) (Verified, error) {
	out, err := v.read(from)
	if err != nil {
		return Verified{}, fmt.Errorf("reading the signed bundle: %w", err)
	}
	return out, nil
}

func (v *Verifier) read(from io.Reader) (Verified, error) {
	a, err := unpack(from)
	if err != nil {
		return Verified{}, err
	}
	signed, err := v.signedFiles(a.files[signaturesFile])
	if err != nil {
		return Verified{}, err
	}
	if err := a.covered(signed); err != nil {
		return Verified{}, err
	}
	m, err := a.manifest()
	switch {
	case err != nil:
		return Verified{}, err
	case m.version == 0:
		return Verified{}, fmt.Errorf(`%s: a signed bundle has a version that grows, like {"metadata": {"version": 42}}`, manifestFile)
	}
	b, err := a.source()
	if err != nil {
		return Verified{}, err
	}
	return Verified{Bundle: b, Version: m.version, Name: m.revision}, nil
}

// signedFiles verifies the signature and gives what it is of.
func (v *Verifier) signedFiles(content []byte) (map[string]opa.FileInfo, error) {
	if content == nil {
		return nil, ErrUnsigned
	}
	var list struct {
		Signatures []string `json:"signatures"`
		Plugin     string   `json:"plugin"`
	}
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", signaturesFile, err)
	}
	if len(list.Signatures) != 1 || list.Plugin != "" && list.Plugin != "_default" {
		return nil, fmt.Errorf("%s: there has to be exactly one signature, and no plugin", signaturesFile)
	}
	algorithm, err := v.algorithm(list.Signatures[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	// The key is this one, whatever key the signature names.
	const only = "arbiter"
	config := opa.NewVerificationConfig(map[string]*keys.Config{only: {Key: v.pem, Algorithm: algorithm}}, only, v.scope, nil)
	files, err := opa.VerifyBundleSignature(opa.SignaturesConfig{Signatures: list.Signatures}, config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return files, nil
}

// algorithm reads the header and the claims of a signature that is not yet
// verified, to refuse what OPA would pass over in silence.
func (v *Verifier) algorithm(signature string) (string, error) {
	parts := strings.Split(signature, ".")
	if len(parts) != 3 {
		return "", errors.New("it is not a JWT")
	}
	var header struct {
		Algorithm string         `json:"alg"`
		Critical  jsontext.Value `json:"crit"`
		Encoded   jsontext.Value `json:"b64"`
	}
	if err := decode(parts[0], &header); err != nil {
		return "", fmt.Errorf("its header: %w", err)
	}
	if header.Critical != nil || header.Encoded != nil {
		return "", errors.New("its header asks for an extension")
	}
	if !slices.Contains(v.algorithms, header.Algorithm) {
		return "", fmt.Errorf("its algorithm is %+q, the key is for %s", header.Algorithm, v.algorithms[0])
	}
	var claims struct {
		Files     jsontext.Value `json:"files"`
		Expires   jsontext.Value `json:"exp"`
		NotBefore jsontext.Value `json:"nbf"`
	}
	if err := decode(parts[1], &claims); err != nil {
		return "", fmt.Errorf("its claims: %w", err)
	}
	if claims.Expires != nil || claims.NotBefore != nil {
		return "", errors.New("it has exp or nbf, which OPA does not look at; the manifest's version is what keeps out an old bundle")
	}
	return header.Algorithm, nil
}

// decode is strict: a key twice is an error, so that OPA reads the same.
func decode(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// strong are the hashes of files that are taken; OPA knows MD5 and SHA-1 too.
var strong = []string{"SHA-256", "SHA-384", "SHA-512", "SHA-512-256"}

// covered holds each file against the signature.
func (a *archive) covered(signed map[string]opa.FileInfo) error {
	for _, name := range a.names {
		if name == signaturesFile {
			continue
		}
		info, found := signed[name]
		switch {
		case !found:
			return fmt.Errorf("%w: %+q is not signed", ErrUncovered, name)
		case opa.IsYAMLDataFile(name): // it is signed as the JSON that OPA reads in it, and YAML can be read otherwise
			return fmt.Errorf("%w: %+q: a signed bundle has its data in data.json, as `opa build` writes it", ErrUncovered, name)
		case !slices.Contains(strong, info.Algorithm):
			return fmt.Errorf("%w: %+q is signed by its %+q, which is not one of %s", ErrUncovered, name, info.Algorithm, strings.Join(strong, ", "))
		}
		if err := opa.VerifyBundleFile(name, *bytes.NewBuffer(a.files[name]), signed); err != nil { // and takes it off the list
			return fmt.Errorf("%w: %w", ErrUncovered, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(signed)) {
		return fmt.Errorf("%w: %+q is signed and not there", ErrUncovered, name)
	}
	return nil
}
