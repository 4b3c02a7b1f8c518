package policy_test

import (
	"bytes"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

// bundleServer is an https server whose answer tests change.
type bundleServer struct {
	*httptest.Server

	mu     sync.Mutex
	answer http.HandlerFunc
	asked  int
	again  int // answered with 304
	token  string
}

func newBundleServer(t *testing.T) *bundleServer {
	t.Helper()
	s := &bundleServer{}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *bundleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked++
	s.token = r.Header.Get("Authorization")
	answer := s.answer
	s.mu.Unlock()
	answer(w, r)
}

func (s *bundleServer) says(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// serves answers with a body that has an ETag.
func (s *bundleServer) serves(body []byte) {
	etag := `"` + policies.Bundle{Files: map[string][]byte{"body": body}}.Revision() + `"`
	s.says(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == etag {
			s.mu.Lock()
			s.again++
			s.mu.Unlock()
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", etag)
		_, _ = w.Write(body)
	})
}

func (s *bundleServer) count() (asked, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.again
}

func (s *bundleServer) config(key []byte) policy.RemoteConfig {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return policy.RemoteConfig{URL: s.URL + "/bundle.tar.gz", Key: key, CA: ca, Every: time.Second, Timeout: 2 * time.Second}
}

func remote(t *testing.T, c policy.RemoteConfig) *policy.Remote {
	t.Helper()
	r, err := policy.NewRemote(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read is what one question comes to.
func read(t *testing.T, s *bundleServer, key []byte) (policy.Offer, error) {
	t.Helper()
	return remote(t, s.config(key)).Read(t.Context())
}

func TestRemoteReads(t *testing.T) {
	s, by := newBundleServer(t), newSigner(t)
	s.serves(by.bundle(3, allowOne))
	offer, err := read(t, s, by.public)
	if err != nil || offer.Version != 3 || offer.Bundle.Revision() != bundleOf(allowOne).Revision() {
		t.Errorf("offered %+v, %v", offer, err)
	}
}

// TestRemoteRefuses has a fault per row, each of which leaves what decides alone.
func TestRemoteRefuses(t *testing.T) {
	t.Parallel()
	s, by, other := newBundleServer(t), newSigner(t), newSigner(t)
	body := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }
	}
	tampered := filesOf(9, allowOne)
	tampered[".signatures.json"] = by.signatures(tampered)
	tampered["policy.rego"] = allowAll
	more := filesOf(9, allowOne)
	more[".signatures.json"] = by.signatures(more)
	more["more.rego"] = allowAll
	unversioned := map[string]string{"policy.rego": allowOne}
	unversioned[".signatures.json"] = by.signatures(unversioned)
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"not found", http.NotFound, "status 404"},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "status 500"},
		{"a part", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, "status 206"},
		{"unchanged, though nothing was asked for", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "304"},
		{"a redirect", http.RedirectHandler("https://127.0.0.1:1/elsewhere", http.StatusFound).ServeHTTP, "redirects"},
		{"a redirect to itself", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusPermanentRedirect)
		}, "redirects"},
		{"a web page", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<!doctype html><title>log in</title>")
		}, "web page"},
		{"a web page that says it is none", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/gzip")
			_, _ = io.WriteString(w, "<!doctype html><title>log in</title>")
		}, "gzip"},
		{"nothing", body(nil), "gzip"},
		{"10 MB", body(bytes.Repeat([]byte{0}, 10<<20)), "larger than"},
		{"without end", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 1<<16))
			}
		}, "larger than"},
		{"10 MB unpacked", body(by.bundle(9, strings.Repeat("#\n", 5<<20))), "bytes"},
		{"half of it", body(by.bundle(9, allowOne)[:200]), "archive"},
		{"unsigned", body(archived(t, filesOf(9, allowOne))), "not signed"},
		{"signed by somebody else", body(other.bundle(9, allowOne)), "signature"},
		{"tampered with", body(archived(t, tampered)), "signature"},
		{"with a file more", body(archived(t, more)), "more.rego"},
		{"without a version", body(archived(t, unversioned)), "version"},
		{"slow to begin", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "in time"},
		{"slow to go on", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(by.bundle(9, allowOne)[:100])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "in time"},
		{"gone in the middle", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write(by.bundle(9, allowOne)[:100])
		}, "unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.says(tt.answer)
			offer, err := read(t, s, by.public)
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(offer.Bundle.Files) > 0 {
				t.Errorf("offered %d files, error %v, want %q", len(offer.Bundle.Files), err, tt.want)
			}
		})
	}
	t.Run("a server that nobody vouches for", func(t *testing.T) {
		s.serves(by.bundle(9, allowOne))
		c := s.config(by.public)
		c.CA = nil
		if _, err := remote(t, c).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("error %v", err)
		}
	})
}

// The last good bundle decides through every fault of its server, an older one
// is never taken, and what is new is.
func TestFollowingARemote(t *testing.T) {
	t.Parallel()
	s, by, db := newBundleServer(t), newSigner(t), openStore(t)
	s.serves(by.bundle(5, allowOne))
	f := run(t, db, remote(t, s.config(by.public)))
	f.decides(allowOne)
	f.eventually("the server says that nothing is new", func() bool { _, again := s.count(); return again > 0 })
	stored, err := db.Policy(t.Context())
	if err != nil || stored.Version != 5 {
		t.Fatalf("stored version %d, %v", stored.Version, err)
	}

	s.serves(by.bundle(4, allowAll)) // once signed, and old
	f.refused("version 4")
	s.serves(by.bundle(5, allowAll)) // another one of the same version
	f.refused("version 5")
	s.says(http.NotFound)
	f.refused("status 404")
	s.serves(by.bundle(6, broken))
	f.refused("policy.rego:4")
	if after, err := db.Policy(t.Context()); err != nil || after.Settings != stored.Settings {
		t.Errorf("stored %+v, %v", after, err)
	}
	s.serves(by.bundle(7, allowAll))
	f.decides(allowAll)
	f.mended()
	if n := f.log.lines("policy refused", "status 404"); n != 1 {
		t.Errorf("one fault was told %d times", n)
	}
}

// A fault that stays after the server said "unchanged" is not forgotten.
func TestUnchangedFaultStays(t *testing.T) {
	s, by := newBundleServer(t), newSigner(t)
	r := remote(t, s.config(by.public))
	s.serves(archived(t, filesOf(1, allowOne)))
	for range 2 {
		if _, err := r.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "not signed") {
			t.Errorf("error %v", err)
		}
	}
	if asked, again := s.count(); asked != 2 || again != 1 {
		t.Errorf("asked %d times, of which %d were answered with 304", asked, again)
	}
}

// A restart while the server is down goes on with what was accepted; a first
// start has nothing to go on with.
func TestStartWithoutTheServer(t *testing.T) {
	s, by, db := newBundleServer(t), newSigner(t), openStore(t)
	s.serves(by.bundle(5, allowOne))
	c := s.config(by.public)
	run(t, db, remote(t, c)).stop()
	s.Close()
	f := run(t, db, remote(t, c))
	f.decides(allowOne)
	f.refused("refused")
	if _, err := try(t, openStore(t), remote(t, c)); err == nil || !strings.Contains(err.Error(), "there is no policy yet") {
		t.Errorf("error %v", err)
	}
}

// An attacker with an old bundle gains nothing by waiting for a restart, nor for
// twenty policies to come and go.
func TestDowngradeAfterARestart(t *testing.T) {
	s, by, db := newBundleServer(t), newSigner(t), openStore(t)
	s.serves(by.bundle(5, allowOne))
	run(t, db, remote(t, s.config(by.public))).stop()
	for range store.KeptPolicies + 1 {
		if _, err := db.AddPolicy(t.Context(), store.Policy{Revision: bundleOf(allowOne).Revision(), Origin: "api", Files: bundleOf(allowOne).Files}); err != nil {
			t.Fatal(err)
		}
	}
	s.serves(by.bundle(4, allowAll))
	f := run(t, db, remote(t, s.config(by.public)))
	f.refused("version 4")
	f.decides(allowOne)
}

func TestRemoteSendsItsToken(t *testing.T) {
	s, by, dir := newBundleServer(t), newSigner(t), t.TempDir()
	s.serves(by.bundle(1, allowOne))
	c := s.config(by.public)
	c.TokenFile = filepath.Join(dir, "token")
	r := remote(t, c)
	for _, tt := range []struct{ name, file, want, fault string }{
		{"there", "canary-one\n", "Bearer canary-one", ""},
		{"rotated", "canary-two", "Bearer canary-two", ""},
		{"empty", "\n", "", "does not hold one token"},
		{"two lines", "canary\ncanary", "", "does not hold one token"},
		{"too long", strings.Repeat("canary", 10_000), "", "does not hold one token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(t, dir, "token", tt.file)
			s.token = ""
			_, err := r.Read(t.Context())
			if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("error %v, want %q", err, tt.fault)
			}
			if s.token != tt.want {
				t.Errorf("sent %q", s.token)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestNewRemoteRefuses(t *testing.T) {
	by := newSigner(t)
	good := policy.RemoteConfig{URL: "https://a.example/b.tar.gz", Key: by.public}
	for _, tt := range []struct {
		name string
		edit func(*policy.RemoteConfig)
		want string
	}{
		{"as it should be", func(*policy.RemoteConfig) {}, ""},
		{"plain, on this machine", func(c *policy.RemoteConfig) { c.URL = "http://127.0.0.1:80/b" }, ""},
		{"plain", func(c *policy.RemoteConfig) { c.URL = "http://a.example/b" }, "neither https"},
		{"plain, on a host with such a name", func(c *policy.RemoteConfig) { c.URL = "http://127.0.0.1.a.example/b" }, "neither https"},
		{"a file", func(c *policy.RemoteConfig) { c.URL = "file:///b" }, "no host"},
		{"a user", func(c *policy.RemoteConfig) { c.URL = "https://canary:canary@a.example/b" }, "more than"},
		{"a query", func(c *policy.RemoteConfig) { c.URL = "https://a.example/b?sig=canary" }, "more than"},
		{"no URL", func(c *policy.RemoteConfig) { c.URL = "https://canary%zz" }, "not a URL"},
		{"no key", func(c *policy.RemoteConfig) { c.Key = nil }, "key"},
		{"no CA in its file", func(c *policy.RemoteConfig) { c.CA = []byte("x") }, "no certificate"},
		{"too often", func(c *policy.RemoteConfig) { c.Every = time.Millisecond }, "too often"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.edit(&c)
			_, err := policy.NewRemote(c)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("the error shows the URL: %v", err)
			}
		})
	}
}
