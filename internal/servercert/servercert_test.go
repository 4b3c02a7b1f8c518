package servercert_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/servercert"
)

func newConfig(dir string) servercert.Config {
	return servercert.Config{Dir: dir, Hosts: []string{"localhost", "127.0.0.1", "::1", "mcp.example.com"}, Slog: slog.New(slog.DiscardHandler)}
}

func pairOf(t *testing.T, cfg servercert.Config) (servercert.Pair, *servercert.Source) {
	t.Helper()
	source, err := servercert.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := source.Pair()
	if err != nil {
		t.Fatal(err)
	}
	return pair, source
}

func leafOf(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestSelfMadeVerifiesForEveryHostAndNothingElse(t *testing.T) {
	cfg := newConfig(t.TempDir())
	pair, source := pairOf(t, cfg)
	ca, err := os.ReadFile(source.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	leaf := leafOf(t, pair.Certificate)
	for _, host := range cfg.Hosts {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "evil.example", Roots: roots}); err == nil {
		t.Error("it verifies for another host")
	}
	if leaf.IsCA || len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Error("the certificate can do more than serve")
	}
	for name, want := range map[string]fs.FileMode{"tls/ca.key": 0o600, "tls/server.key": 0o600, "tls": 0o700 | fs.ModeDir, "ca.pem": 0o644} {
		info, err := os.Stat(filepath.Join(cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestSelfMadeIsKeptUntilItMustChange(t *testing.T) {
	dir := t.TempDir()
	first, _ := pairOf(t, newConfig(dir))
	again, _ := pairOf(t, newConfig(dir))
	if first.Certificate != again.Certificate {
		t.Error("a second start made another certificate")
	}
	cfg := newConfig(dir)
	cfg.Hosts = append(cfg.Hosts, "new.example")
	wider, _ := pairOf(t, cfg)
	if wider.Certificate == first.Certificate || leafOf(t, wider.Certificate).VerifyHostname("new.example") != nil {
		t.Error("a new host did not make a new certificate")
	}
	cfg.Now = func() time.Time { return time.Now().Add(80 * 24 * time.Hour) }
	renewed, _ := pairOf(t, cfg)
	if !renewed.NotAfter.After(wider.NotAfter) {
		t.Error("a certificate near its end was not renewed")
	}
}

func TestAuthorityIsNeverReplacedSilently(t *testing.T) {
	dir := t.TempDir()
	pairOf(t, newConfig(dir))
	other := t.TempDir()
	pairOf(t, newConfig(other))
	foreign, err := os.ReadFile(filepath.Join(other, "tls", "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "tls", "ca.key"), foreign, 0o600), os.Remove(filepath.Join(dir, "tls", "server.pem"))); err != nil {
		t.Fatal(err)
	}
	if _, err := servercert.New(newConfig(dir)); err == nil || !strings.Contains(err.Error(), "is not the key of") {
		t.Errorf("an authority with another's key: %v", err)
	}
}

func TestGivenFilesAreChecked(t *testing.T) {
	made := t.TempDir()
	pairOf(t, newConfig(made))
	cert, key := filepath.Join(made, "tls", "server.pem"), filepath.Join(made, "tls", "server.key")
	for _, row := range []struct {
		name string
		edit func(*servercert.Config)
		want string // part of the error; "" is none
	}{
		{"good", func(*servercert.Config) {}, ""},
		{"certificate alone", func(c *servercert.Config) { c.KeyFile = "" }, "both"},
		{"key of another", func(c *servercert.Config) { c.KeyFile = filepath.Join(made, "tls", "ca.key") }, "private key does not match"},
		{"no such file", func(c *servercert.Config) { c.CertFile = "/nonexistent" }, "no such file"},
		{"not yet valid", func(c *servercert.Config) {
			c.Now = func() time.Time { return time.Now().Add(-48 * time.Hour) }
		}, "is valid from"},
		{"expired", func(c *servercert.Config) { c.Now = func() time.Time { return time.Now().Add(100 * 24 * time.Hour) } }, "is valid from"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := servercert.Config{CertFile: cert, KeyFile: key, Slog: slog.New(slog.DiscardHandler)}
			row.edit(&cfg)
			_, err := servercert.New(cfg)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

func TestWatchReportsANewCertificateAndKeepsTheLastGoodOne(t *testing.T) {
	dir, next := t.TempDir(), t.TempDir()
	pairOf(t, newConfig(dir))
	want, _ := pairOf(t, newConfig(next))
	cfg := servercert.Config{
		CertFile: filepath.Join(dir, "tls", "server.pem"), KeyFile: filepath.Join(dir, "tls", "server.key"),
		Slog: slog.New(slog.DiscardHandler),
	}
	pair, source := pairOf(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var calls atomic.Int32
	changed := make(chan servercert.Pair, 8)
	ended := make(chan error, 1)
	go func() {
		ended <- source.Watch(ctx, pair, func(p servercert.Pair) error {
			calls.Add(1)
			changed <- p
			return nil
		})
	}()
	if err := os.WriteFile(cfg.CertFile, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(cfg.KeyFile, []byte(want.Key.Reveal()), 0o600), os.WriteFile(cfg.CertFile, []byte(want.Certificate), 0o600)); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-changed:
		if got.Certificate != want.Certificate || got.Key != want.Key {
			t.Error("another certificate was reported")
		}
	case <-ctx.Done():
		t.Fatal("the new certificate was never reported")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if calls.Load() != 1 {
		t.Errorf("reported %d times", calls.Load())
	}
}
