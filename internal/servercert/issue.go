package servercert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 90 * 24 * time.Hour
	backdate = time.Hour // for clients whose clock is behind
)

// issue makes a server certificate, and the authority first if there is none.
func (s *Source) issue(certFile, keyFile string) error {
	ca, caKey, err := s.authority()
	if err != nil {
		return fmt.Errorf("making the server certificate's authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := s.cfg.Now()
	leaf := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "arbiter gateway"},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range s.cfg.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	der, err := sign(leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return fmt.Errorf("making the server certificate: %w", err)
	}
	if err := writeKey(keyFile, key); err != nil {
		return err
	}
	return write(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// authority reads the self-made authority, or makes it.
func (s *Source) authority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	keyFile := filepath.Join(s.cfg.Dir, "tls", "ca.key")
	ca, key, err := readAuthority(s.CAFile(), keyFile)
	if err == nil && s.cfg.Now().Before(ca.NotAfter.Add(-leafLife)) {
		return ca, key, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Dir(keyFile), 0o700); err != nil {
		return nil, nil, err
	}
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	now := s.cfg.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "arbiter local authority"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	if err := writeKey(keyFile, key); err != nil {
		return nil, nil, err
	}
	if err := write(s.CAFile(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, nil, err
	}
	return readAuthority(s.CAFile(), keyFile)
}

func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	return x509.CreateCertificate(rand.Reader, template, parent, public, key)
}

func readAuthority(certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certText, err := os.ReadFile(certFile)
	if err != nil {
		return nil, nil, err
	}
	cert, err := parseFirst(string(certText))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", certFile, err)
	}
	keyText, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(keyText)
	if block == nil {
		return nil, nil, fmt.Errorf("%s has no PEM block", keyFile)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("%s is not the key of %s: remove both to make a new authority", keyFile, certFile)
	}
	return cert, private, nil
}

func parseFirst(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return write(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// write replaces a file as a whole.
func write(path string, text []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".draft-*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	if err := errors.Join(draft.Chmod(mode), writeAll(draft, text), draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), path)
}

func writeAll(f *os.File, text []byte) error {
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}
