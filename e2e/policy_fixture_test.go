//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arbiter-gateway/arbiter/e2e/clients"
)

// toolbox is an upstream, for both eras, with tools of these names, each of which
// says that it was called, and the prompt "letter". It returns its URL.
func toolbox(t *testing.T, names ...string) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "toolbox", Version: "1"}, nil)
	for _, name := range names {
		tool := &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
		server.AddTool(tool, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "did " + name}}}, nil
		})
	}
	server.AddPrompt(&mcp.Prompt{Name: "letter"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	of := func(*http.Request) *mcp.Server { return server }
	legacy := mcp.NewStreamableHTTPHandler(of, nil)
	modern := mcp.NewStreamableHTTPHandler(of, &mcp.StreamableHTTPOptions{Stateless: true})
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("MCP-Protocol-Version") >= clients.ModernRevision {
			modern.ServeHTTP(w, r)
			return
		}
		legacy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		listening.CloseClientConnections()
		listening.Close()
	})
	return listening.URL
}

// agent is a session of the Go SDK, unmodified.
type agent struct {
	*mcp.ClientSession
	gets *gets
}

// gets counts the GET streams that a client has open.
type gets struct {
	http.RoundTripper
	token string
	open  atomic.Int64
	ended atomic.Int64 // broken off by the other side
}

func (g *gets) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+g.token)
	resp, err := g.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && resp.StatusCode == http.StatusOK {
		g.open.Add(1)
		resp.Body = &counted{ReadCloser: resp.Body, gets: g}
	}
	return resp, err
}

// counted is the body of a GET stream.
type counted struct {
	io.ReadCloser
	gets *gets
	over atomic.Bool
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, context.Canceled) && !c.over.Swap(true) {
		c.gets.ended.Add(1)
		c.gets.open.Add(-1)
	}
	return n, err
}

func (c *counted) Close() error {
	if !c.over.Swap(true) {
		c.gets.open.Add(-1)
	}
	return c.ReadCloser.Close()
}

// agent connects a client of the SDK. listens says whether it opens a GET stream.
func (g *gateway) agent(t *testing.T, server, token string, listens bool) *agent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	streams := &gets{RoundTripper: g.transport(t, true), token: token}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: g.base + "/servers/" + server + "/mcp", HTTPClient: &http.Client{Transport: streams},
		DisableStandaloneSSE: !listens,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return &agent{session, streams}
}

// call calls a tool. A code is that of a JSON-RPC error instead of a result.
func (a *agent) call(t *testing.T, tool string, arguments map[string]any) (text string, isError bool, code int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := a.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if fault, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return fault.Message, true, fault.Code
	}
	if err != nil {
		t.Fatalf("calling %s: %v", tool, err)
	}
	for _, block := range result.Content {
		if said, ok := block.(*mcp.TextContent); ok {
			text += said.Text
		}
	}
	return text, result.IsError, 0
}

// does calls a tool that has to be allowed.
func (a *agent) does(t *testing.T, tool string, arguments map[string]any) {
	t.Helper()
	if text, isError, code := a.call(t, tool, arguments); isError || text != "did "+tool {
		t.Errorf("calling %s: %q (error %t, code %d), want it done", tool, text, isError, code)
	}
}

// isTold calls a tool that has to be denied with a reason that the agent can
// read: a result, not an error that a client may take for the session's end.
func (a *agent) isTold(t *testing.T, tool string, arguments map[string]any, reason string) {
	t.Helper()
	if text, isError, code := a.call(t, tool, arguments); !isError || code != 0 || !strings.Contains(text, reason) {
		t.Errorf("calling %s: %q (error %t, code %d), want to be told %q", tool, text, isError, code, reason)
	}
}

// sees are the names of the tools that are listed.
func (a *agent) sees(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	list, err := a.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// example copies one of the examples, with data of the test's own.
func example(t *testing.T, name string, data any) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "examples", "policies", name))); err != nil {
		t.Fatal(err)
	}
	if data != nil {
		text, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		save(t, filepath.Join(dir, "data.json"), string(text))
	}
	return dir
}

// save writes a file as an editor does that keeps it whole.
func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// apply makes a directory the policy, and comes back when it is live.
func (g *gateway) apply(t *testing.T, dir string) {
	t.Helper()
	if out, err := g.cli(t, "", "policy", "apply", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
