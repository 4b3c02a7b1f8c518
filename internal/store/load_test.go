package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// BenchmarkAllServers is what a start with 100,000 servers waits for.
func BenchmarkAllServers(b *testing.B) {
	s := full(b, 100_000)
	b.ResetTimer()
	for b.Loop() {
		n := 0
		if _, err := s.AllServers(b.Context(), func(store.Server) error { n++; return nil }); err != nil || n != 100_000 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkTokenByDigest is a miss of a replica's cache.
func BenchmarkTokenByDigest(b *testing.B) {
	s := full(b, 1000)
	for b.Loop() {
		if _, _, err := s.TokenByDigest(b.Context(), token.Digest{1}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDeleteToken is one durable transaction, with the row that it needs.
func BenchmarkDeleteToken(b *testing.B) {
	s := full(b, 1)
	list, _, err := s.Servers(b.Context(), store.Page{})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		d := token.Digest{2, byte(i), byte(i >> 8), byte(i >> 16)}
		tok, err := s.CreateToken(b.Context(), store.AccessToken{Server: list[0].ID, Digest: d})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.DeleteToken(b.Context(), list[0].ID, tok.ID); err != nil {
			b.Fatal(err)
		}
	}
}

// full opens a database of n servers and one token. The servers are copies of
// one, made by the database itself.
func full(b *testing.B, n int) *store.Store {
	b.Helper()
	path := filepath.Join(b.TempDir(), "arbiter.db")
	s, err := store.Open(b.Context(), store.Config{Path: path, Key: testKey})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	first, err := s.CreateServer(b.Context(), store.Server{
		Name: "server-0", Enabled: true, MCP: "https://mcp.example.com/mcp", Labels: map[string]string{"team": "a"},
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.CreateToken(b.Context(), store.AccessToken{Server: first.ID, Digest: token.Digest{1}}); err != nil {
		b.Fatal(err)
	}
	if err := copies(b.Context(), path, first.ID, n-1); err != nil {
		b.Fatal(err)
	}
	return s
}

func copies(ctx context.Context, path string, of identity.ServerID, n int) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i := range n {
		_, err := tx.ExecContext(ctx, `INSERT INTO servers
			SELECT $1, $2, enabled, mcp, rpc, ca, legacy, modern, allowed_origins, labels, max_body, call_limit, batches,
				literal_denials, header_names, headers_revision, revision, created_at, updated_at, headers
			FROM servers WHERE id = $3`,
			identity.NewServerID().String(), fmt.Sprint("server-", i+1), of.String())
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}
