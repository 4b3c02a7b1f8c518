// Package servercert is where Envoy's server certificate comes from: files that
// the operator keeps, or an authority of its own in the data directory.
//
// It is read again and again (Watch), so that a renewed certificate is pushed
// without a restart. The private key leaves it only for Envoy.
package servercert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/secret"
)

// Config says which certificate. Either both files or Dir.
type Config struct {
	CertFile string   // PEM, leaf first, then intermediates
	KeyFile  string   // PEM
	Dir      string   // data directory: tls/ and ca.pem are kept there
	Hosts    []string // names and addresses that a self-made certificate covers
	Now      func() time.Time
	Slog     *slog.Logger
}

// Pair is a certificate that was checked: it parses, the key is its own, it is
// in its time.
type Pair struct {
	Certificate string // PEM, leaf first
	Key         secret.Text
	NotBefore   time.Time
	NotAfter    time.Time
}

// Source gives the certificate in use.
type Source struct{ cfg Config }

const watchEvery = 2 * time.Second

// New checks that there is a usable certificate, making one if none was given.
func New(cfg Config) (*Source, error) {
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, errors.New("server certificate: give both the certificate and its key, or neither")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Source{cfg}
	_, err := s.Pair()
	return s, err
}

// CAFile is the authority of a self-made certificate, "" with given files.
func (s *Source) CAFile() string {
	if s.cfg.CertFile != "" {
		return ""
	}
	return filepath.Join(s.cfg.Dir, "ca.pem")
}

// Pair reads the certificate, renewing a self-made one when its time has come.
func (s *Source) Pair() (Pair, error) {
	if s.cfg.CertFile != "" {
		return s.read(s.cfg.CertFile, s.cfg.KeyFile)
	}
	cert, key := filepath.Join(s.cfg.Dir, "tls", "server.pem"), filepath.Join(s.cfg.Dir, "tls", "server.key")
	pair, err := s.read(cert, key)
	if err == nil && s.covers(pair) {
		return pair, nil
	}
	if err := s.issue(cert, key); err != nil {
		return Pair{}, err
	}
	return s.read(cert, key)
}

func (s *Source) read(certFile, keyFile string) (Pair, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return Pair{}, fmt.Errorf("reading the server certificate: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return Pair{}, fmt.Errorf("reading the server key: %w", err)
	}
	parsed, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return Pair{}, fmt.Errorf("reading the server certificate %s: %w", certFile, err)
	}
	leaf := parsed.Leaf
	now := s.cfg.Now()
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return Pair{}, fmt.Errorf("the server certificate %s is valid from %s to %s only",
			certFile, leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339))
	}
	return Pair{string(cert), secret.New(string(key)), leaf.NotBefore, leaf.NotAfter}, nil
}

// covers reports whether a self-made certificate needs no renewal: it has more
// than a third of its life left and names every host.
func (s *Source) covers(pair Pair) bool {
	leaf, err := parseFirst(pair.Certificate)
	if err != nil {
		return false
	}
	if left := pair.NotAfter.Sub(s.cfg.Now()); left < leafLife/3 {
		return false
	}
	for _, host := range s.cfg.Hosts {
		if leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	ca, err := os.ReadFile(s.CAFile())
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return false
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: s.cfg.Now()})
	return err == nil
}

// Watch calls changed with every certificate that differs from the one before,
// until ctx ends. A certificate that cannot be used is reported and the last
// good one stays.
func (s *Source) Watch(ctx context.Context, last Pair, changed func(Pair) error) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		pair, err := s.Pair()
		if err == nil && pair.Certificate == last.Certificate && pair.Key == last.Key {
			continue
		}
		if err == nil {
			err = changed(pair)
		}
		switch {
		case err == nil:
			s.cfg.Slog.Info("server certificate renewed", "not_after", pair.NotAfter)
			last, reported = pair, ""
		case err.Error() != reported:
			reported = err.Error()
			s.cfg.Slog.Error("the new server certificate is not used", "error", err)
		}
	}
}
