//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/e2e/clients"
	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// toolScopes let a token do everything that the SDK clients do, and nothing
// with the tool that they try last.
var toolScopes = []string{
	"--scope", "mcp:connect", "--scope", "tools:call:echo", "--scope", "tools:call:add",
	"--scope", "tools:call:slow", "--scope", "tools:call:clock", "--scope", "tools:call:ask",
}

// TestSDKsWorkUnchanged is what the gateway is for: every client, unmodified,
// given a URL, a CA and a header, works through Envoy.
func TestSDKsWorkUnchanged(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	list, err := clients.All(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 6 {
		t.Fatalf("%d clients, want 6", len(list))
	}
	demo := shared.object(t, "", "server", "show", "demo")["mcp"].(string)
	legacy := shared.addServer(t, demo, "")
	both := shared.addServer(t, demo, "", "--eras", "legacy,modern")
	for _, client := range list {
		t.Run(strings.ReplaceAll(client.Name, " ", "-"), func(t *testing.T) {
			t.Run("legacy", func(t *testing.T) { runClient(t, ctx, client, legacy, clients.Default, clients.LegacyRevision) })
			if !client.Modern {
				return
			}
			t.Run("falls back", func(t *testing.T) { runClient(t, ctx, client, legacy, clients.Auto, clients.LegacyRevision) })
			t.Run("modern", func(t *testing.T) { runClient(t, ctx, client, both, clients.Auto, clients.ModernRevision) })
		})
	}
}

// runClient lets one client do all of its steps and checks what it was told.
func runClient(t *testing.T, ctx context.Context, client clients.Client, server string, era clients.Era, revision string) {
	_, token := shared.addToken(t, server, toolScopes...)
	header := filepath.Join(t.TempDir(), "header")
	if err := os.WriteFile(header, []byte("Authorization: Bearer "+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	relay := testfleet.NewRelay(t, shared.addr)
	_, port, _ := strings.Cut(relay.Addr(), ":")
	steps, err := client.Run(ctx, clients.Env{
		URL: "https://localhost:" + port + "/servers/" + server + "/mcp",
		CA:  filepath.Join(shared.dir, "ca.pem"), HeaderFile: header, Era: era, DeniedTool: "forbidden",
		Cut: func(context.Context) error { relay.Cut(); return nil },
	})
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, step := range steps {
		t.Logf("%-14s %v %s", step.Name, step.OK, step.Detail)
	}
	detail := func(name string) string {
		at := slices.IndexFunc(steps, func(s clients.Step) bool { return s.Name == name })
		if at < 0 {
			return ""
		}
		return steps[at].Detail
	}
	if got := detail("connect"); got != revision {
		t.Errorf("connected with revision %q, want %q", got, revision)
	}
	if got := detail("denied"); !strings.Contains(got, "tools:call:forbidden") || !strings.Contains(got, "ask the server's owner") {
		t.Errorf("the denial told %q: no reason and no help", got)
	}
}
