package store_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// A sealed value opens only where it was put, and unchanged.
func TestSealedValuesCannotBeMovedOrAltered(t *testing.T) {
	const canary = "canary-value"
	for _, tt := range []struct{ name, do string }{
		{"to another row", `UPDATE servers SET headers = (SELECT headers FROM servers WHERE name = 'a')`},
		{"from another table", `UPDATE servers SET headers = (SELECT key_check FROM meta)`},
		{"altered", `UPDATE servers SET headers = 'AAAA' || substr(headers, 5)`},
		{"cut short", `UPDATE servers SET headers = substr(headers, 1, 8)`},
		{"not base64", `UPDATE servers SET headers = '?'`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
			defer closed(t, s)
			created(t, s, "a", store.Header{Name: "X", Value: secret.New(canary)})
			b := created(t, s, "b", store.Header{Name: "X", Value: secret.New("b")})
			if err := s.Exec(tt.do); err != nil {
				t.Fatal(err)
			}
			got, _, err := s.UpstreamHeaders(t.Context(), b.ID)
			if !errors.Is(err, store.ErrUnavailable) || got != nil || strings.Contains(err.Error(), canary) {
				t.Fatalf("headers %v, error %v", got, err)
			}
		})
	}
	for _, do := range []string{
		`UPDATE sealed_keys SET sealed = (SELECT sealed FROM sealed_keys WHERE kind = 'session')`,
		`DELETE FROM sealed_keys WHERE kind = 'session'`,
		`DELETE FROM sealed_keys WHERE kind = 'token_mac'`,
	} {
		s := opened(t, filepath.Join(t.TempDir(), "arbiter.db"))
		defer closed(t, s)
		if _, err := s.Keys(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Exec(do); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Keys(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: error %v", do, err)
		}
	}
}

// Nothing that must stay secret is in any file, while the database is open (in
// its -wal) and after.
func TestSecretsAreNotInTheFiles(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, filepath.Join(dir, "arbiter.db"))
	text := "arb_at_canary-of-a-token"
	srv := created(t, s, "a", store.Header{Name: "X-Api-Key", Value: secret.New("canary-of-a-header")})
	_, err := s.UpdateServer(t.Context(), srv.ID, func(*store.Server) error { return nil },
		&[]store.Header{{Name: "X-Api-Key", Value: secret.New("canary-of-the-next")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateToken(t.Context(), store.AccessToken{Server: srv.ID, Digest: sha256.Sum256([]byte(text))}); err != nil {
		t.Fatal(err)
	}
	keys, err := s.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{"canary-of"}
	for _, key := range [][32]byte{testKey, keys.TokenMAC, keys.Sessions[0].Key} {
		secrets = append(secrets, string(key[:]), hex.EncodeToString(key[:]), base64.StdEncoding.EncodeToString(key[:])[:40])
	}
	search := func() {
		found := filesWith(t, dir, "X-Api-Key") // as a control: what is stored openly is found
		if len(found) == 0 {
			t.Error("the search finds nothing at all")
		}
		for _, s := range secrets {
			if found := filesWith(t, dir, s); len(found) > 0 {
				t.Errorf("%q is in %v", s, found)
			}
		}
	}
	search()
	closed(t, s)
	search()
}

func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) {
			found = append(found, name)
		}
	}
	return found
}

func TestConfigHidesItsKey(t *testing.T) {
	c := store.Config{Path: "p", Key: testKey}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, c); got != "store at p" {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}
