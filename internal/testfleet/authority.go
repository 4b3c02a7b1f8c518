package testfleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Authority is a certificate authority of a test's own: ECDSA P-256, one hour.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority whose subject is name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          newSerial(t),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("test authority: %v", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("test authority: %v", err)
	}
	return &Authority{certificate: certificate, key: key}
}

// PEM is the authority's certificate.
func (a *Authority) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}))
}

// File writes PEM to a file that lives as long as the test, and returns its path.
func (a *Authority) File(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, []byte(a.PEM()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Pool holds the authority's certificate and no other.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Leaf is a certificate for servers and clients that names all of sans: IP
// addresses, URIs (with "://") and, for the rest, DNS names. It runs for an hour.
func (a *Authority) Leaf(t testing.TB, sans ...string) tls.Certificate {
	t.Helper()
	return a.LeafFor(t, time.Now().Add(-time.Minute), time.Now().Add(time.Hour), sans...)
}

// LeafFor is a Leaf that is valid from notBefore to notAfter, for tests of
// expired certificates and ones not yet valid.
func (a *Authority) LeafFor(t testing.TB, notBefore, notAfter time.Time, sans ...string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: newSerial(t),
		NotBefore:    notBefore,
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, san := range sans {
		addSAN(t, template, san)
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatalf("test certificate: %v", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func addSAN(t testing.TB, template *x509.Certificate, san string) {
	t.Helper()
	if ip := net.ParseIP(san); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
		return
	}
	if !strings.Contains(san, "://") {
		template.DNSNames = append(template.DNSNames, san)
		return
	}
	uri, err := url.Parse(san)
	if err != nil {
		t.Fatalf("test certificate: %v", err)
	}
	template.URIs = append(template.URIs, uri)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("test key: %v", err)
	}
	return key
}

func newSerial(t testing.TB) *big.Int {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatalf("test serial: %v", err)
	}
	return serial.Add(serial, big.NewInt(1))
}
