//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// TestServerCertificateIsReplacedWithoutARestart gives the gateway certificate
// files, replaces them while it serves, and asks on old and new connections.
func TestServerCertificateIsReplacedWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	first, second := testfleet.NewAuthority(t, "first"), testfleet.NewAuthority(t, "second")
	install := func(authority *testfleet.Authority) {
		t.Helper()
		cert, key := pemOf(t, authority.Leaf(t, "localhost", "127.0.0.1"))
		for file, text := range map[string][]byte{keyFile: key, certFile: cert} {
			if err := os.WriteFile(file+".new", text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(first)
	g := start(t, "ARBITER_TLS_CERT="+certFile, "ARBITER_TLS_KEY="+keyFile)
	g.roots = first.Pool()
	server := g.demo(t)
	_, token := g.addToken(t, server)
	ask := call{path: "/servers/" + server + "/rpc", token: token, body: rpc("1", "tools/list", "")}
	if got := g.do(t, ask); got.status != 200 {
		t.Fatalf("with the first certificate: %d %s", got.status, got.body)
	}
	install(second)
	g.roots = second.Pool()
	eventually(t, 30*time.Second, "a handshake sees the new certificate", func() bool {
		got, err := g.try(t, ask)
		return err == nil && got.status == 200
	})
	g.roots = first.Pool()
	if _, err := g.try(t, ask); err == nil {
		t.Error("the first certificate is still served")
	}
}

// TestTLSIsModern refuses old versions and resumption.
func TestTLSIsModern(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12} {
		conn, err := tls.Dial("tcp", shared.addr, &tls.Config{RootCAs: shared.roots, ServerName: "localhost", MinVersion: version, MaxVersion: version})
		if err == nil {
			conn.Close()
			t.Errorf("%s is accepted", tls.VersionName(version))
		}
	}
	config := &tls.Config{RootCAs: shared.roots, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	for range 3 {
		conn, err := tls.Dial("tcp", shared.addr, config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if state := conn.ConnectionState(); state.DidResume {
			t.Error("a TLS session was resumed")
		}
		conn.Close()
	}
}

// pemOf writes a certificate and its key as operators keep them.
func pemOf(t *testing.T, leaf tls.Certificate) (cert, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
