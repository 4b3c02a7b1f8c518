package demo_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/arbiter-gateway/arbiter/internal/demo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a demo server until the test ends and returns its origin.
func start(t *testing.T) string {
	t.Helper()
	server, err := demo.New(demo.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + server.Addr()
}

// client is a connected SDK client and what it was told.
//
//nolint:staticcheck // SEP-2577 deprecates sampling and logging; today's clients use them
type client struct {
	*mcp.ClientSession
	progress chan *mcp.ProgressNotificationParams
	logged   chan *mcp.LoggingMessageParams
}

// connect asks for revision and expects to get it.
//
//nolint:staticcheck // SEP-2577 deprecates sampling and logging; today's clients use them
func connect(t *testing.T, origin, revision string) client {
	t.Helper()
	c := client{
		progress: make(chan *mcp.ProgressNotificationParams, 16),
		logged:   make(chan *mcp.LoggingMessageParams, 16),
	}
	sdk := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(_ context.Context, req *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			asked, ok := req.Params.Messages[0].Content.(*mcp.TextContent)
			if !ok {
				t.Errorf("asked %T, want text", req.Params.Messages[0].Content)
				asked = &mcp.TextContent{}
			}
			return &mcp.CreateMessageResult{
				Model: "test", Role: "assistant", Content: &mcp.TextContent{Text: "you asked " + asked.Text},
			}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			c.progress <- req.Params
		},
		LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) { c.logged <- req.Params },
	})
	session, err := sdk.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: origin + "/mcp"},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("revision %q, want %q", got, revision)
	}
	c.ClientSession = session
	return c
}

func (c client) call(t *testing.T, tool string, arguments map[string]any) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	params.SetProgressToken(tool)
	result, err := c.CallTool(t.Context(), params)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	said, ok := result.Content[0].(*mcp.TextContent)
	if !ok || result.IsError {
		t.Fatalf("%s: %+v", tool, result)
	}
	return said.Text
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

var revisions = []string{"2025-11-25", "2026-07-28"}

func TestToolsInBothEras(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			c := connect(t, start(t), revision)
			list, err := c.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
			}
			if want := []string{"add", "ask", "clock", "echo", "slow"}; !slices.Equal(names, want) {
				t.Errorf("tools %q, want %q", names, want)
			}
			for _, call := range []struct {
				tool      string
				arguments map[string]any
				want      string
			}{
				{"echo", map[string]any{"text": "100 %d"}, "100 %d"},
				{"add", map[string]any{"a": 2, "b": 0.5}, "2.5"},
				{"slow", map[string]any{"steps": 3, "delay_ms": 1}, "done after 3 steps"},
				{"ask", map[string]any{"question": "why?"}, "the model says: you asked why?"},
			} {
				if got := c.call(t, call.tool, call.arguments); got != call.want {
					t.Errorf("%s: %q, want %q", call.tool, got, call.want)
				}
			}
			for step := 1.0; step <= 3; step++ {
				if got := receive(t, c.progress); got.Progress != step || got.Total != 3 {
					t.Errorf("progress %v of %v, want %v of 3", got.Progress, got.Total, step)
				}
			}
		})
	}
}

func TestPromptsAndResourcesInBothEras(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			c := connect(t, start(t), revision)
			prompt, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{
				Name: "greet", Arguments: map[string]string{"name": "Ada"},
			})
			if err != nil {
				t.Fatal(err)
			}
			said, ok := prompt.Messages[0].Content.(*mcp.TextContent)
			if want := "Say hello to Ada."; !ok || said.Text != want {
				t.Errorf("prompt %+v, want %q", prompt.Messages[0].Content, want)
			}
			list, err := c.ListResources(t.Context(), nil)
			if err != nil || len(list.Resources) != 1 {
				t.Fatalf("resources: %v, %v", list, err)
			}
			if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: list.Resources[0].URI}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The ticks come on the GET stream: the call they began with has been answered.
func TestClockTicksOnTheSessionsStream(t *testing.T) {
	c := connect(t, start(t), "2025-11-25")
	if got, want := c.call(t, "clock", map[string]any{"ticks": 3, "interval_ms": 20}), "ticking 3 times on the session's stream"; got != want {
		t.Errorf("clock: %q, want %q", got, want)
	}
	for range 3 {
		if got := receive(t, c.logged); got.Logger != "clock" || got.Level != "info" {
			t.Errorf("logged %+v, want info of clock", got)
		}
	}
}

func TestOversizedArgumentsAreRefused(t *testing.T) {
	c := connect(t, start(t), "2025-11-25")
	for _, arguments := range []map[string]any{{"steps": 601}, {"steps": -1}, {"delay_ms": 10_001}, {"delay_ms": -1}} {
		result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow", Arguments: arguments})
		if err != nil || !result.IsError {
			t.Errorf("%v: %+v, %v; want a tool error", arguments, result, err)
		}
	}
}

func TestNewRefusesAddressesOthersReach(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0", "localhost:0", "127.0.0.1"} {
		if _, err := demo.New(demo.Config{Listen: listen}); err == nil {
			t.Errorf("%q: no error", listen)
		}
	}
}

func TestRPC(t *testing.T) {
	origin := start(t)
	for _, test := range []struct {
		name, body, want string
	}{
		{
			"echo", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hi"}]}}`,
		},
		{"ping", `{"jsonrpc":"2.0","id":"a<b","method":"ping"}`, `{"jsonrpc":"2.0","id":"a<b","result":{}}`},
		{"id kept as it came", `{"jsonrpc":"2.0","id":1.50e2,"method":"ping"}`, `{"jsonrpc":"2.0","id":1.50e2,"result":{}}`},
		{"notification", `{"jsonrpc":"2.0","method":"ping"}`, ``},
		{
			"batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`,
			`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]`,
		},
		{"not JSON", `{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON"}}`},
		{"not a request", `{"id":1}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not a JSON-RPC 2.0 request"}}`},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: \"x/y\""}}`},
		{
			"sampling needs a session", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"question":"q"}}}`,
			`not without a session`,
		},
		{"tools", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"name":"echo"`},
		{"prompts", `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, `"name":"greet"`},
		{"resources", `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, `"uri":"demo://about"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/rpc", strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" && (resp.StatusCode != http.StatusAccepted || len(got) != 0) {
				t.Errorf("%d %s, want 202 and nothing", resp.StatusCode, got)
			}
			if !bytes.Contains(got, []byte(test.want)) || (strings.HasSuffix(test.want, "}") && string(got) != test.want) {
				t.Errorf("answer %s\nwant %s", got, test.want)
			}
		})
	}
}
