package xds_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/arbiter-gateway/arbiter/xds"
)

// immediate is an answer that Guard puts in place of another.
func immediate(code int32, body, details string) *procv3.ProcessingResponse {
	return &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &procv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(code)}, Body: []byte(body), Details: details,
			Headers: &procv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{rawHeader("content-type", "application/json")}},
		},
	}}
}

// rawHeader is what ext_proc takes; ext_authz takes header.
func rawHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func headersAnswer(common *procv3.CommonResponse, mode *filterv3.ProcessingMode) *procv3.ProcessingResponse {
	return &procv3.ProcessingResponse{
		ModeOverride: mode,
		Response: &procv3.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &procv3.HeadersResponse{Response: common},
		},
	}
}

// TestEnvoyGate lists which answers Guard is asked about. The Guard of the test
// replaces each, so what it was not asked about is what passes.
func TestEnvoyGate(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		w.Header()["Content-Type"] = query["type"] // none: no header at all
		w.Header().Set("Location", "https://elsewhere.example")
		status, err := strconv.Atoi(query.Get("status"))
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	})
	const json, html, none = "type=application/json", "type=text/html", ""
	tests := []struct {
		mark    string
		status  int
		kind    string
		guarded bool
	}{
		{"0", 200, json, false},
		{"0", 200, "type=Application/JSON%3b+charset=utf-8", false},
		{"0", 202, none, true},
		{"none", 202, none, false},
		{"none", 202, html, true},
		{"none", 200, json, false},
		{"none", 200, none, true},
		{"none", 401, json, true},
		{"none", 204, none, true},
		{"0", 400, json, false},
		{"0", 404, json, false},
		{"0", 500, json, false},
		{"0", 200, "type=text/event-stream", true},
		{"0", 200, html, true},
		{"0", 200, none, true},
		{"0", 204, none, true},
		{"0", 202, html, true},
		{"0", 404, html, true},
		{"0", 500, none, true},
		{"0", 200, "type=application/json-seq", true},
		{"0", 200, "type=application/jsonp", true},
		{"0", 200, "type=text/html%3b+application/json", true},
		{"0", 200, "type=application/json&type=text/html", true},
		{"0", 200, "type=application/json%3b+a&type=text/html", true},
		{"0", 200, "type=application/json,+text/html", true},
		{"0", 401, json, true},
		{"0", 407, json, true},
		{"0", 301, json, true},
		{"0", 304, json, true},
		{"0", 399, json, true},
		{"seal", 200, json, true},
		{"all", 200, json, true},
		{"all", 500, json, true},
		{"list", 200, json, true},
		{"list", 500, json, true},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s %d %s", test.mark, test.status, test.kind), func(t *testing.T) {
			to := toURL(up.URL)
			to.mark, to.path = test.mark, fmt.Sprintf("/up?status=%d&%s", test.status, test.kind)
			server := g.route(to)
			g.guard(server, func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
				return s.Send(immediate(502, `{"replaced":true}`, "guard_replaced"))
			})
			got := g.do(t, g.client(true), "POST", "/servers/"+server+"/mcp", `{}`)
			checkAnswer(t, got)
			want := test.status
			if test.guarded {
				want = 502
				if got.body != `{"replaced":true}` || got.header.Get("Content-Type") != "application/json" {
					t.Errorf("Guard's answer came as %+v", got)
				}
			}
			if got.status != want {
				t.Errorf("got %d, want %d", got.status, want)
			}
		})
	}
}

// TestEnvoyGuardsProtocolSwitch holds that a 101 nobody asked for is Guard's to replace.
func TestEnvoyGuardsProtocolSwitch(t *testing.T) {
	g := startGateway(t, nil)
	url := g.rawUpstream("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
	server := g.route(toURL(url))
	g.guard(server, func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
		return s.Send(immediate(502, `{"replaced":true}`, "guard_replaced"))
	})
	if got := g.do(t, g.client(false), "POST", "/servers/"+server+"/mcp", `{}`); got.body != `{"replaced":true}` {
		t.Errorf("got %+v", got)
	}
}

// TestEnvoyDropsUpstreamSessionIDs holds that the upstream's own session id
// passes only where Guard is asked to replace it.
func TestEnvoyDropsUpstreamSessionIDs(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Mcp-Session-Id", "theirs")
		answerJSON(`{}`)(w, nil)
	})
	for mark, want := range map[string]string{"0": "", "none": "", "all": "", "list": "", "seal": "theirs"} {
		to := toURL(up.URL)
		to.mark = mark
		server := g.route(to)
		g.guard(server, func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
			return s.Send(headersAnswer(&procv3.CommonResponse{}, nil))
		})
		got := g.do(t, g.client(true), "POST", "/servers/"+server+"/mcp", `{}`)
		if id := got.header.Get("Mcp-Session-Id"); id != want {
			t.Errorf("mark %s: session id %q, want %q", mark, id, want)
		}
	}
}

// TestEnvoyOpenerAnswer asks for the body of an answer to initialize and sets
// the session id afterwards, up to the size that Guard is promised.
func TestEnvoyOpenerAnswer(t *testing.T) {
	g := startGateway(t, nil)
	body := strings.Repeat("x", 2*xds.MaxOpenerAnswer)
	answer := func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		w.Header().Set("Mcp-Session-Id", "theirs")
		answerJSON(body[:size])(w, r)
	}
	plain, encrypted := newUpstream(t, answer), newTLSUpstream(t, g.authority, "up.example", answer)
	first, second := toURL(plain.URL), toURL(encrypted.URL)
	second.cluster, second.host = "tls-system", "up.example"
	for _, to := range []target{first, second} {
		for _, http2 := range []bool{false, true} {
			for _, size := range []int{2, 64 << 10, xds.MaxOpenerAnswer - 1, xds.MaxOpenerAnswer, 2 * xds.MaxOpenerAnswer} {
				to.mark, to.path = "seal", "/up?size="+strconv.Itoa(size)
				server := g.route(to)
				judged := make(chan int, 1)
				g.guard(server, sealer(judged))
				got := g.do(t, g.client(http2), "POST", "/servers/"+server+"/mcp", `{}`)
				checkAnswer(t, got)
				saw := <-judged
				if got.status != 200 || len(got.body) != size || got.header.Get("Mcp-Session-Id") != "ours" {
					t.Errorf("%s, HTTP/2 %v, %d bytes: %d with %d bytes and the session %q",
						to.cluster, http2, size, got.status, len(got.body), got.header.Get("Mcp-Session-Id"))
				}
				if size <= xds.MaxOpenerAnswer && saw != size {
					t.Errorf("%s, HTTP/2 %v, %d bytes: Guard saw %d", to.cluster, http2, size, saw)
				}
				if size > xds.MaxOpenerAnswer && saw <= xds.MaxOpenerAnswer { // Guard counts: it may even get all
					t.Errorf("%s, HTTP/2 %v, %d bytes: Guard saw %d, cannot tell that it is too long", to.cluster, http2, size, saw)
				}
			}
		}
	}
}

// sealer takes the upstream's session id off, looks at the body, and puts on one of its own.
func sealer(judged chan<- int) func(procv3.ExternalProcessor_ProcessServer, *procv3.ProcessingRequest) error {
	return func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
		err := s.Send(headersAnswer(
			&procv3.CommonResponse{HeaderMutation: &procv3.HeaderMutation{RemoveHeaders: []string{"mcp-session-id"}}},
			&filterv3.ProcessingMode{
				ResponseHeaderMode: filterv3.ProcessingMode_SEND,
				ResponseBodyMode:   filterv3.ProcessingMode_BUFFERED_PARTIAL,
			}))
		if err != nil {
			return err
		}
		request, err := s.Recv()
		if err != nil {
			return err
		}
		judged <- len(request.GetResponseBody().GetBody())
		return s.Send(&procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ResponseBody{
			ResponseBody: &procv3.BodyResponse{Response: &procv3.CommonResponse{HeaderMutation: &procv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{rawHeader("mcp-session-id", "ours")},
			}}},
		}})
	}
}

// TestEnvoyStreams reads an event while the stream goes on, then cuts it from Guard.
func TestEnvoyStreams(t *testing.T) {
	g := startGateway(t, nil)
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			ended := make(chan struct{})
			up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(ended)
			})
			server := g.route(toURL(up.URL))
			cut := make(chan struct{})
			g.guard(server, func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
				if err := s.Send(headersAnswer(&procv3.CommonResponse{}, nil)); err != nil {
					return err
				}
				<-cut
				return s.Send(immediate(401, "", "revoked"))
			})
			request, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/servers/"+server+"/mcp", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := g.client(http2).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			event := make([]byte, 9)
			if _, err := io.ReadFull(answer.Body, event); err != nil || string(event) != "data: 1\n\n" {
				t.Fatalf("read %q: %v", event, err)
			}
			began := time.Now()
			close(cut)
			if rest, err := io.ReadAll(answer.Body); err == nil {
				t.Errorf("the stream ended politely after %q", rest)
			}
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("the client saw the cut after %v", took)
			}
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				t.Error("the upstream's side of the stream lives on")
			}
		})
	}
}

// TestEnvoyCutsStreamsOfADeadGuard holds that no stream outlives the process
// that could cut it.
func TestEnvoyCutsStreamsOfADeadGuard(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := g.route(toURL(up.URL))
	g.guard(server, func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
		err := s.Send(headersAnswer(&procv3.CommonResponse{}, nil))
		<-s.Context().Done()
		return err
	})
	request, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/servers/"+server+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := g.client(true).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	g.stopExtauthz()
	if _, err := io.ReadAll(answer.Body); err == nil {
		t.Error("the stream ended politely")
	}
}
