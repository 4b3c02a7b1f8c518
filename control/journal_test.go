package control_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control"
	"github.com/arbiter-gateway/arbiter/internal/journal"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// A delete that is not noted outside the database would come back with an older
// copy of it: the answer does not say that it is done.
func TestDeleteThatIsNotNotedIsNotAnswered(t *testing.T) {
	var past *journal.Journal
	f := newFixture(t, func(cfg *control.Config) { past = cfg.Journal })
	srv, err := f.store.CreateServer(t.Context(), newServer("one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string) (int, string) {
		t.Helper()
		in, err := http.NewRequestWithContext(t.Context(), method, "http://arbiter"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := f.admin.Do(in)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Body.Close()
		body, err := io.ReadAll(out.Body)
		if err != nil {
			t.Fatal(err)
		}
		return out.StatusCode, string(body)
	}
	tokenPath := func(name string) string {
		made, err := f.store.CreateToken(t.Context(), store.AccessToken{Server: srv.ID, Digest: token.DigestOf(name)})
		if err != nil {
			t.Fatal(err)
		}
		return "/api/v1/servers/" + srv.ID.String() + "/tokens/" + made.ID
	}
	if status, body := ask("DELETE", tokenPath("noted")); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	if err := past.Close(); err != nil { // no write gets through from here on
		t.Fatal(err)
	}
	if status, body := ask("DELETE", tokenPath("not noted")); status != http.StatusServiceUnavailable || !strings.Contains(body, "the change is stored") {
		t.Errorf("status %d: %s", status, body)
	}
	if _, body := ask("GET", "/readyz"); !strings.Contains(body, "ended-") {
		t.Errorf("nobody is told: %s", body)
	}
}
