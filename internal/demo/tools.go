package demo

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ErrLimit refuses an argument that would keep the demo server busy for too long.
var ErrLimit = errors.New("argument out of range")

const (
	maxSteps    = 600              // of slow and clock
	maxInterval = 10 * time.Second // between two of them
)

func (s *Server) newMCP() *mcp.Server {
	server := mcp.NewServer(
		&mcp.Implementation{Name: "arbiter-demo", Title: "Arbiter's demo server", Version: version()},
		&mcp.ServerOptions{Instructions: "A server to try a gateway on. It keeps nothing."})
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Says the text again."}, echo)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds two numbers."}, add)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "slow",
		Description: "Takes its time: a number of steps, each reported as progress.",
	}, slow)
	mcp.AddTool(server, &mcp.Tool{
		Name: "clock",
		Description: "Sends the time as log notifications: in a session it answers at once and they come on the " +
			"session's own stream (GET), without a session they come in the answer.",
	}, s.clock)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "ask",
		Description: "Puts a question to the caller's model (sampling) and says what it answered.",
	}, ask)
	server.AddPrompt(&mcp.Prompt{
		Name:        "greet",
		Description: "A greeting.",
		Arguments:   []*mcp.PromptArgument{{Name: "name", Description: "Who is greeted.", Required: true}},
	}, greet)
	server.AddResource(&mcp.Resource{
		Name: "about", URI: aboutURI, MIMEType: "text/plain", Description: "What this server is.",
	}, about)
	server.AddReceivingMiddleware(logFromTheStart)
	return server
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

type echoArguments struct {
	Text string `json:"text" jsonschema:"what to say again"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in echoArguments) (*mcp.CallToolResult, any, error) {
	return text("%s", in.Text), nil, nil
}

type addArguments struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

func add(_ context.Context, _ *mcp.CallToolRequest, in addArguments) (*mcp.CallToolResult, any, error) {
	return text("%s", strconv.FormatFloat(in.A+in.B, 'f', -1, 64)), nil, nil
}

type slowArguments struct {
	Steps   int `json:"steps,omitempty" jsonschema:"how many steps, 1 to 600; 5 when absent"`
	DelayMS int `json:"delay_ms,omitempty" jsonschema:"milliseconds for a step, up to 10000; 100 when absent"`
}

func slow(ctx context.Context, req *mcp.CallToolRequest, in slowArguments) (*mcp.CallToolResult, any, error) {
	steps, delay, err := pace(in.Steps, in.DelayMS, 100*time.Millisecond)
	if err != nil {
		return nil, nil, err
	}
	for step := 1; step <= steps; step++ {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(step), Total: float64(steps),
				Message: fmt.Sprintf("step %d of %d", step, steps),
			}) // a caller that is gone ends ctx
		}
	}
	return text("done after %d steps", steps), nil, nil
}

// pace reads "so many, so far apart"; zero means the default.
func pace(count, milliseconds int, interval time.Duration) (int, time.Duration, error) {
	if count == 0 {
		count = 5
	}
	if milliseconds != 0 {
		interval = time.Duration(milliseconds) * time.Millisecond
	}
	if count < 0 || count > maxSteps || milliseconds < 0 || interval > maxInterval {
		return 0, 0, fmt.Errorf("%w: at most %d, at most %s apart", ErrLimit, maxSteps, maxInterval)
	}
	return count, interval, nil
}

type clockArguments struct {
	Ticks      int `json:"ticks,omitempty" jsonschema:"how many notifications, 1 to 600; 5 when absent"`
	IntervalMS int `json:"interval_ms,omitempty" jsonschema:"milliseconds between two, up to 10000; 1000 when absent"`
}

func (s *Server) clock(ctx context.Context, req *mcp.CallToolRequest, in clockArguments) (*mcp.CallToolResult, any, error) {
	ticks, interval, err := pace(in.Ticks, in.IntervalMS, time.Second)
	if err != nil {
		return nil, nil, err
	}
	if req.Session.ID() == "" { // no session, no stream but this answer's
		s.tick(ctx, req.Session, ticks, interval)
		return text("ticked %d times", ticks), nil, nil
	}
	s.ticks.Go(func() { //nolint:contextcheck // what is sent under the call's context comes in the call's answer
		s.tick(context.Background(), req.Session, ticks, interval)
	})
	return text("ticking %d times on the session's stream", ticks), nil, nil
}

// tick sends the time until it has been sent often enough, ctx or the session
// has ended, or the server stops.
//
//nolint:staticcheck // SEP-2577 deprecates sampling and logging; today's clients use them
func (s *Server) tick(ctx context.Context, session *mcp.ServerSession, ticks int, interval time.Duration) {
	every := time.NewTicker(interval)
	defer every.Stop()
	for n := 1; n <= ticks; n++ {
		select {
		case now := <-every.C:
			_ = session.Log(ctx, &mcp.LoggingMessageParams{
				Level: "info", Logger: "clock",
				Data: map[string]any{"tick": n, "of": ticks, "time": now.UTC().Format(time.RFC3339Nano)},
			}) // undelivered without a stream; the event store keeps it for the next one
		case <-ctx.Done():
			return
		case <-s.done:
			return
		}
		if !slices.Contains(slices.Collect(s.mcp.Sessions()), session) {
			return
		}
	}
}

type askArguments struct {
	Question string `json:"question" jsonschema:"what to ask the caller's model"`
}

// ask works in both eras: the SDK turns the wish for input into a
// sampling/createMessage request in a session, and into a result that wants
// input (MCP 2026-07-28, multi round-trip requests) without one.
//
//nolint:staticcheck // SEP-2577 deprecates sampling and logging; today's clients use them
func ask(_ context.Context, req *mcp.CallToolRequest, in askArguments) (*mcp.CallToolResult, any, error) {
	const question = "question"
	answer, answered := req.Params.InputResponses[question]
	if !answered {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{question: &mcp.CreateMessageParams{
			MaxTokens: 100,
			Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: in.Question}}},
		}}}, nil, nil
	}
	return text("the model says: %s", sampled(answer)), nil, nil
}

// sampled is what the model answered in words.
//
//nolint:staticcheck // SEP-2577 deprecates sampling and logging; today's clients use them
func sampled(answer mcp.InputResponse) string {
	var content []mcp.Content
	switch message := answer.(type) {
	case *mcp.CreateMessageResult:
		content = []mcp.Content{message.Content}
	case *mcp.CreateMessageWithToolsResult:
		content = message.Content
	}
	for _, block := range content {
		if said, ok := block.(*mcp.TextContent); ok {
			return said.Text
		}
	}
	return "(nothing in words)"
}

func greet(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{
		Role: "user", Content: &mcp.TextContent{Text: "Say hello to " + req.Params.Arguments["name"] + "."},
	}}}, nil
}

const aboutURI = "demo://about"

func about(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
		URI: aboutURI, MIMEType: "text/plain", Text: "A small MCP server to try a gateway on.",
	}}}, nil
}

// logFromTheStart gives each new session the log level "info", as if its client
// had asked for it: without a level the SDK sends no log notification at all,
// and clock would be silent for clients that never set one.
//
//nolint:staticcheck // SEP-2577 deprecates sampling and logging; today's clients use them
func logFromTheStart(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		session, inSession := req.GetSession().(*mcp.ServerSession)
		if err != nil || method != "notifications/initialized" || !inSession {
			return result, err
		}
		_, err = next(ctx, "logging/setLevel", &mcp.ServerRequest[*mcp.SetLoggingLevelParams]{
			Session: session, Params: &mcp.SetLoggingLevelParams{Level: "info"},
		})
		return result, err
	}
}
