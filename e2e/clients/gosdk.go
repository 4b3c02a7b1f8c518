package clients

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	patience = 30 * time.Second // for a step
	answer   = "forty-two"      // what the client's model says to whatever it is asked
)

var errStep = errors.New("unexpected")

// goClient is the Go SDK's client and what it was told.
type goClient struct {
	*mcp.ClientSession
	revision string
	logged   chan string // loggers of log notifications
	progress chan float64
}

// runGo walks through the steps in this process.
func runGo(ctx context.Context, env Env, report func(Step)) error {
	step := func(name string, do func(context.Context) (string, error)) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		detail, err := do(ctx)
		if err != nil {
			detail = err.Error()
		}
		report(Step{Name: name, OK: err == nil, Detail: detail})
		return err
	}
	transport, err := goHTTP(env)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	var c *goClient
	if err := step("connect", func(ctx context.Context) (string, error) {
		if c, err = goConnect(ctx, env, transport); err != nil {
			return "", err
		}
		return c.revision, nil
	}); err != nil {
		return err
	}
	c.walk(ctx, env, step)
	return step("close", func(context.Context) (string, error) { return "", c.Close() })
}

// walk does the steps between connect and close; each reports its own failure.
func (c *goClient) walk(ctx context.Context, env Env, step func(string, func(context.Context) (string, error)) error) {
	_ = step("list", c.lists)
	_ = step("echo", c.says("echo", map[string]any{"text": "hello"}, "hello"))
	_ = step("add", c.says("add", map[string]any{"a": 2, "b": 3}, "5"))
	_ = step("progress", c.progresses)
	_ = step("ask", c.says("ask", map[string]any{"question": "why?"}, "the model says: "+answer))
	if env.DeniedTool != "" {
		_ = step("denied", func(ctx context.Context) (string, error) { return c.denied(ctx, env.DeniedTool) })
		_ = step("after-denied", c.says("echo", map[string]any{"text": "again"}, "again"))
	}
	if c.revision >= ModernRevision {
		return
	}
	_ = step("notifications", c.notified)
	if env.Cut != nil {
		_ = step("ready-to-cut", func(context.Context) (string, error) { return "", nil })
		_ = step("after-cut", func(context.Context) (string, error) {
			if err := env.Cut(ctx); err != nil {
				return "", err
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return c.goesOn(ctx)
		})
	}
}

// goConnect opens a session, or agrees on a revision without one.
//
//nolint:staticcheck // SEP-2577 deprecates sampling and logging; today's clients use them
func goConnect(ctx context.Context, env Env, transport http.RoundTripper) (*goClient, error) {
	c := &goClient{logged: make(chan string, 64), progress: make(chan float64, 64)}
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e-go", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "test", Content: &mcp.TextContent{Text: answer}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) { c.logged <- req.Params.Logger },
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			c.progress <- req.Params.Progress
		},
	})
	var options mcp.ClientSessionOptions
	if env.Era == Legacy {
		options.ProtocolVersion = LegacyRevision
	}
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: env.URL, HTTPClient: &http.Client{Transport: transport},
	}, &options)
	if err != nil {
		return nil, err
	}
	c.ClientSession, c.revision = session, session.InitializeResult().ProtocolVersion
	return c, nil
}

func (c *goClient) lists(ctx context.Context) (string, error) {
	if _, err := c.ListPrompts(ctx, nil); err != nil {
		return "", err
	}
	if _, err := c.ListResources(ctx, nil); err != nil {
		return "", err
	}
	list, err := c.ListTools(ctx, nil)
	if err != nil {
		return "", err
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if !slices.Contains(names, "echo") {
		return "", fmt.Errorf("%w: no echo among %q", errStep, names)
	}
	return strings.Join(names, ","), nil
}

func (c *goClient) call(ctx context.Context, tool string, arguments map[string]any) (text string, isError bool, err error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	params.SetProgressToken(tool)
	result, err := c.CallTool(ctx, params)
	if err != nil {
		return "", false, err
	}
	for _, block := range result.Content {
		if said, ok := block.(*mcp.TextContent); ok {
			text += said.Text
		}
	}
	return text, result.IsError, nil
}

func (c *goClient) says(tool string, arguments map[string]any, want string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		text, isError, err := c.call(ctx, tool, arguments)
		if err == nil && (isError || text != want) {
			err = fmt.Errorf("%w: %q (tool error: %t), want %q", errStep, text, isError, want)
		}
		return text, err
	}
}

func (c *goClient) progresses(ctx context.Context) (string, error) {
	if _, _, err := c.call(ctx, "slow", map[string]any{"steps": 3, "delay_ms": 50}); err != nil {
		return "", err
	}
	for want := 1.0; want <= 3; want++ {
		select {
		case got := <-c.progress:
			if got != want {
				return "", fmt.Errorf("%w: progress %v, want %v", errStep, got, want)
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return "3 notifications", nil
}

func (c *goClient) denied(ctx context.Context, tool string) (string, error) {
	text, isError, err := c.call(ctx, tool, map[string]any{"text": "x"})
	if err == nil && (!isError || text == "") {
		err = fmt.Errorf("%w: not denied: %q", errStep, text)
	}
	return text, err
}

func (c *goClient) notified(ctx context.Context) (string, error) {
	if _, _, err := c.call(ctx, "clock", map[string]any{"ticks": 3, "interval_ms": 50}); err != nil {
		return "", err
	}
	return c.ticks(ctx, 3)
}

// ticks waits for log notifications of the clock, which come on the GET stream.
func (c *goClient) ticks(ctx context.Context, count int) (string, error) {
	for range count {
		select {
		case logger := <-c.logged:
			if logger != "clock" {
				return "", fmt.Errorf("%w: logger %q", errStep, logger)
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return fmt.Sprintf("%d notifications", count), nil
}

// goesOn calls until there is a notification: the GET stream is open again. A
// call may meet the connection that was cut with the stream; the next one must
// not.
func (c *goClient) goesOn(ctx context.Context) (string, error) {
	call := c.says("echo", map[string]any{"text": "still here"}, "still here")
	lost := "no call lost"
	if _, err := call(ctx); err != nil {
		lost = "one call lost: " + err.Error()
		if _, err := call(ctx); err != nil {
			return "", err
		}
	}
	for {
		if _, _, err := c.call(ctx, "clock", map[string]any{"ticks": 2, "interval_ms": 50}); err != nil {
			return "", err
		}
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		detail, err := c.ticks(soon, 1)
		cancel()
		if err == nil || ctx.Err() != nil {
			return detail + ", " + lost, err
		}
	}
}

// headers adds the given ones to each request.
type headers struct {
	http.RoundTripper
	add http.Header
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range h.add {
		r.Header[name] = values
	}
	return h.RoundTripper.RoundTrip(r)
}

func (h headers) CloseIdleConnections() {
	if t, ok := h.RoundTripper.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

func goHTTP(env Env) (headers, error) {
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if env.CA != "" {
		pem, err := os.ReadFile(env.CA)
		if err != nil {
			return headers{}, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return headers{}, fmt.Errorf("%w: no certificate in %s", errStep, env.CA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	h := headers{RoundTripper: transport, add: make(http.Header)}
	if env.HeaderFile == "" {
		return h, nil
	}
	file, err := os.Open(env.HeaderFile)
	if err != nil {
		return headers{}, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			h.add.Set(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return h, nil
}
