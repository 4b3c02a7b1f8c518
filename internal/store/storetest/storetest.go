// Package storetest is what every engine under package store must do: one
// suite, run against each.
package storetest

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// New makes an empty database for a test. The function that it returns opens
// that database, as often as it is called; of the Config it fills in where the
// database is, and the key where there is none.
type New func(t *testing.T) func(store.Config) (*store.Store, error)

// Run runs the suite.
func Run(t *testing.T, engine New) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, New)
	}{
		{"servers", testServers},
		{"server headers", testHeaders},
		{"server lists", testServerLists},
		{"tokens", testTokens},
		{"token lists", testTokenLists},
		{"revocations", testRevocations},
		{"replicas", testReplicas},
		{"restore", testRestore},
		{"changes", testChanges},
		{"keys", testKeys},
		{"policies", testPolicies},
		{"decisions", testDecisions},
		{"decision lists", testDecisionLists},
		{"arguments", testArguments},
		{"notices", testNotices},
		{"concurrent writers", testConcurrentWriters},
		{"order", testOrder},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, engine) })
	}
}

// fresh opens an empty database until the test ends.
func fresh(t *testing.T, engine New, c store.Config) *store.Store {
	t.Helper()
	return opened(t, engine(t), c)
}

func opened(t *testing.T, open func(store.Config) (*store.Store, error), c store.Config) *store.Store {
	t.Helper()
	s, err := open(c)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock {
	return &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 123456000, time.UTC)}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// wantErr fails unless err is want; nil wants success.
func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// created stores a server of this name that speaks MCP.
func created(t *testing.T, s *store.Store, name string, headers ...store.Header) store.Server {
	t.Helper()
	srv, err := s.CreateServer(t.Context(), store.Server{Name: name, Enabled: true, MCP: "https://mcp.example/" + name}, headers)
	wantErr(t, err, nil)
	return srv
}

// issued stores a token whose text is its name.
func issued(t *testing.T, s *store.Store, server identity.ServerID, name string) store.AccessToken {
	t.Helper()
	made, err := s.CreateToken(t.Context(), store.AccessToken{Server: server, Name: name, Digest: digest(name)})
	wantErr(t, err, nil)
	return made
}

func digest(text string) token.Digest { return sha256.Sum256([]byte(text)) }

func header(name, value string) store.Header {
	return store.Header{Name: name, Value: secret.New(value)}
}

func revision(t *testing.T, s *store.Store) int64 {
	t.Helper()
	n, err := s.Revision(t.Context())
	wantErr(t, err, nil)
	return n
}

func seq(t *testing.T, s *store.Store) int64 {
	t.Helper()
	at, err := s.Position(t.Context())
	wantErr(t, err, nil)
	return at.Seq
}
