//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

var echoScopes = []string{"--scope", "mcp:connect", "--scope", "tools:call:echo"}

// TestListAnswers: a narrowed token sees its own tools only, however the
// upstream gives them, and never a byte of a list that cannot be read.
func TestListAnswers(t *testing.T) {
	_, origin := newListUpstream(t)
	const note = "data: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n"
	for _, test := range []struct {
		how    string
		status int
		code   int
		body   string // whole; "": whatever
		broken bool
	}{
		{how: "json", status: 200, body: echoTools},
		{how: "json-bytes", status: 200, body: echoTools},
		{how: "json-chunked", status: 200, body: echoTools},
		{how: "json-500", status: 500, body: echoTools},
		{how: "nameless", status: 200, body: `{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}`},
		{how: "mebi-4", status: 200, body: `{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo"}]}}`},
		{how: "duplicate", status: 200, code: -31502},
		{how: "invalid", status: 200, code: -31502},
		{how: "another-case", status: 200, code: -31502},
		{how: "trailing", status: 200, code: -31502},
		{how: "mebi-5-chunked", status: 200, code: -31502},
		{how: "mebi-5-early", status: 502, code: -31502},
		{how: "mebi-5", status: 200, code: -31502},
		{how: "gzip", status: 502, code: -31502},
		{how: "gzip-sse", status: 502, code: -31502},
		{how: "never-whole", status: 200, body: "", broken: true},
		{how: "sse", status: 200, body: "id: 1_2\nevent: message\ndata: " + echoTools + "\n\n"},
		{how: "sse-bytes", status: 200, body: ": hi\r\n\r\nid: 1_2\n" + note + "data: " + echoTools + "\n\n"},
		{how: "sse-lines", status: 200, body: "data: " + echoTools + "\n\n"},
		{how: "sse-half", status: 200, body: note},
		{how: "sse-invalid-late", status: 200, broken: true},
		{how: "sse-endless", status: 200, broken: true},
	} {
		t.Run(test.how, func(t *testing.T) {
			t.Parallel()
			server := shared.addServer(t, origin+"/"+test.how, "", oneSecond)
			_, token := shared.addToken(t, server, echoScopes...)
			header := map[string]string{"Mcp-Session-Id": shared.session2(t, server, token), "Accept-Encoding": "gzip, br"}
			for _, http2 := range []bool{false, true} {
				got, err := shared.try(t, call{path: "/servers/" + server + "/mcp", token: token, header: header, body: rpc("7", "tools/list", ""), http2: http2})
				if (err != nil) != test.broken || got.status != test.status || got.code() != test.code {
					t.Errorf("http2 %v: status %d, code %d, %v, body %.300q", http2, got.status, got.code(), err, got.body)
				}
				if test.body != "" && got.body != test.body {
					t.Errorf("http2 %v: body %.300q, want %.300q", http2, got.body, test.body)
				}
				if strings.Contains(got.body, `"add"`) || strings.Contains(got.body, "delete_all") || strings.Contains(got.body, `"t1"`) {
					t.Errorf("http2 %v: a hidden tool in %.300q", http2, got.body)
				}
				if test.code != 0 {
					checkOurError(t, got, "7")
				}
			}
		})
	}
}

// TestListOnRPC is the same for one answer on the stateless path.
func TestListOnRPC(t *testing.T) {
	_, origin := newListUpstream(t)
	for how, want := range map[string]string{"json-bytes": echoTools, "duplicate": "-31502"} {
		server := shared.addServer(t, "", origin+"/"+how)
		_, token := shared.addToken(t, server, echoScopes...)
		got := shared.do(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("7", "tools/list", "")})
		if got.status != 200 || !strings.Contains(got.body, want) || strings.Contains(got.body, "delete_all") {
			t.Errorf("%s: status %d, body %s", how, got.status, got.body)
		}
	}
}

// TestListIsAskedForUncompressed, and its answer goes on before the upstream
// has ended it.
func TestListIsAskedForUncompressed(t *testing.T) {
	u, origin := newListUpstream(t)
	server := shared.addServer(t, origin+"/whole-and-hangs", "")
	_, token := shared.addToken(t, server, echoScopes...)
	header := map[string]string{"Mcp-Session-Id": shared.session2(t, server, token), "Accept-Encoding": "gzip"}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := shared.open(t, ctx, call{path: "/servers/" + server + "/mcp", token: token, header: header, body: rpc("7", "tools/list", "")})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := make([]byte, len(echoTools))
	if _, err := resp.Body.Read(body); err != nil || string(body) != echoTools {
		t.Errorf("read %q, %v", body, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Equal(u.accepted, []string{""}) {
		t.Errorf("the upstream was asked for the encodings %q", u.accepted)
	}
}

// TestListBeforeTrailers: an answer over HTTP/2 that ends with trailers is
// filtered too, and one that was not whole by then is none.
func TestListBeforeTrailers(t *testing.T) {
	ours := testfleet.NewAuthority(t, "ours")
	leaf := ours.Leaf(t, "localhost")
	for body, want := range map[string]string{allTools: echoTools, allTools[:100]: ""} {
		origin := testfleet.NewHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Late")
			flushed(w, "application/json", body, "")
			w.Header().Set("X-Late", "yes")
		}), &leaf)
		server := shared.addServer(t, "", strings.Replace(origin, "127.0.0.1", "localhost", 1), "--ca", ours.File(t))
		_, token := shared.addToken(t, server, echoScopes...)
		for _, http2 := range []bool{false, true} {
			got, err := shared.try(t, call{path: "/servers/" + server + "/rpc", token: token, body: rpc("7", "tools/list", ""), http2: http2})
			if want != "" && (err != nil || got.body != want) {
				t.Errorf("http2 %v: %v, %s", http2, err, got.body)
			}
			if want == "" && err == nil && got.code() != -31502 {
				t.Errorf("http2 %v: half a list came as %d %s", http2, got.status, got.body)
			}
		}
	}
}

// TestListInAResumedStream: a list that comes on a GET with Last-Event-ID is
// filtered as well, and the stream is cut as every other while it flows.
func TestListInAResumedStream(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		u, origin := newListUpstream(t)
		server := shared.addServer(t, origin+"/held", "")
		id, token := shared.addToken(t, server, echoScopes...)
		header := map[string]string{"Mcp-Session-Id": shared.session2(t, server, token), "Last-Event-ID": "0_1", "Accept": "text/event-stream"}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		resp, err := shared.open(t, ctx, call{method: http.MethodGet, path: "/servers/" + server + "/mcp", token: token, header: header, http2: http2})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		var got []string
		for len(got) < 2 && lines.Scan() {
			got = append(got, lines.Text())
		}
		if !slices.Equal(got, []string{"id: 1", "data: " + echoTools}) {
			t.Fatalf("http2 %v: read %q", http2, got)
		}
		close(u.held) // events flow from here on
		revoked := make(chan error, 1)
		go func() {
			_, err := shared.cli(t, "", "token", "delete", server, id)
			revoked <- err
		}()
		for lines.Scan() {
			if strings.Contains(lines.Text(), "delete_all") {
				t.Fatalf("http2 %v: read %q", http2, lines.Text())
			}
		}
		if lines.Err() == nil || ctx.Err() != nil {
			t.Errorf("http2 %v: the stream ended with %v, %v: not cut", http2, lines.Err(), ctx.Err())
		}
		if err := <-revoked; err != nil {
			t.Error(err)
		}
		u.mu.Lock()
		if !slices.Equal(u.resumed, []string{"0_1"}) {
			t.Errorf("the upstream saw the last events %q", u.resumed)
		}
		u.mu.Unlock()
	}
}

// TestListThroughAnSDK: a real client pages through a real server's lists, in
// JSON and in streams, in both eras, and finds what it may call.
func TestListThroughAnSDK(t *testing.T) {
	for name, options := range map[string]*mcp.StreamableHTTPOptions{
		"stream": {}, "JSON": {JSONResponse: true}, "without sessions": {Stateless: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := pagedServer()
			handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return upstream }, options)
			server := shared.addServer(t, testfleet.NewHTTP(t, handler, nil)+"/mcp", "", "--eras", "legacy,modern")
			_, token := shared.addToken(t, server, "--scope", "mcp:connect", "--scope", "tools:call:tool-3", "--scope", "tools:call:tool-4", "--scope", "tools:call:tool-9")
			client := mcp.NewClient(&mcp.Implementation{Name: "lists", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint:   shared.base + "/servers/" + server + "/mcp",
				HTTPClient: &http.Client{Transport: bearer{shared.transport(t, true), token}},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			var names []string
			for tool, err := range session.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			if !slices.Equal(names, []string{"tool-3", "tool-4", "tool-9"}) {
				t.Errorf("listed %q in %s", names, session.InitializeResult().ProtocolVersion)
			}
			for _, name := range []string{"tool-3", "tool-5"} {
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
				if called := err == nil && !result.IsError; called != slices.Contains(names, name) {
					t.Errorf("calling %s: %v, %+v", name, err, result)
				}
			}
		})
	}
}

// pagedServer has ten tools, and shows two at a time.
func pagedServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "paged", Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	for _, digit := range "0123456789" {
		mcp.AddTool(server, &mcp.Tool{Name: "tool-" + string(digit)}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	return server
}

// bearer adds a token to each request.
type bearer struct {
	http.RoundTripper

	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}
