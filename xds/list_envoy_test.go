package xds_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// streamed asks for the body of an answer, part by part.
func streamed(s procv3.ExternalProcessor_ProcessServer) error {
	return s.Send(headersAnswer(
		&procv3.CommonResponse{HeaderMutation: &procv3.HeaderMutation{RemoveHeaders: []string{"content-length"}}},
		&filterv3.ProcessingMode{
			ResponseBodyMode: filterv3.ProcessingMode_STREAMED, ResponseTrailerMode: filterv3.ProcessingMode_SEND,
		}))
}

// inPlace puts text in the place of one part of a body.
func inPlace(text string) *procv3.ProcessingResponse {
	mutation := &procv3.BodyMutation{Mutation: &procv3.BodyMutation_ClearBody{ClearBody: true}}
	if text != "" {
		mutation.Mutation = &procv3.BodyMutation_Body{Body: []byte(text)}
	}
	return &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ResponseBody{
		ResponseBody: &procv3.BodyResponse{Response: &procv3.CommonResponse{BodyMutation: mutation}},
	}}
}

// TestEnvoyListAnswer holds what Guard does to a list: every part of the body
// is taken, and all of it, as long as a list may be, put in the last one's place.
func TestEnvoyListAnswer(t *testing.T) {
	g := startGateway(t, nil)
	const most = 4 << 20
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(most))
		answerJSON(strings.Repeat("x", most))(w, nil)
	})
	to := toURL(up.URL)
	to.mark = "list"
	server := g.route(to)
	g.guard(server, func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
		if err := streamed(s); err != nil {
			return err
		}
		for held := 0; ; {
			in, err := s.Recv()
			if err != nil {
				return err
			}
			text := ""
			if held += len(in.GetResponseBody().GetBody()); in.GetResponseBody().GetEndOfStream() {
				text = strings.Repeat("y", held)
			}
			if err := s.Send(inPlace(text)); err != nil {
				return err
			}
		}
	})
	for _, http2 := range []bool{false, true} {
		got := g.do(t, g.client(http2), "POST", "/servers/"+server+"/mcp", `{}`)
		checkAnswer(t, got)
		if got.status != 200 || got.body != strings.Repeat("y", most) {
			t.Errorf("HTTP/2 %v: status %d with %d bytes: %.20s", http2, got.status, len(got.body), got.body)
		}
	}
}

// TestEnvoyBreaksAListOff holds that an answer whose headers are out can be
// ended while parts of its body are on their way, and that nothing of it comes.
func TestEnvoyBreaksAListOff(t *testing.T) {
	g := startGateway(t, nil)
	for _, http2 := range []bool{false, true} {
		out := make(chan struct{})
		up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			<-out
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
			}
		})
		to := toURL(up.URL)
		to.mark = "list"
		server := g.route(to)
		g.guard(server, func(s procv3.ExternalProcessor_ProcessServer, _ *procv3.ProcessingRequest) error {
			if err := streamed(s); err != nil {
				return err
			}
			for first := true; ; first = false {
				if _, err := s.Recv(); err != nil {
					return err
				}
				if first {
					if err := s.Send(immediate(502, "", "list_refused")); err != nil {
						return err
					}
				}
			}
		})
		request, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/servers/"+server+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := g.client(http2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		close(out)
		if body, err := io.ReadAll(answer.Body); err == nil || len(body) > 0 {
			t.Errorf("HTTP/2 %v: %q, and the end is polite: %v", http2, body, err == nil)
		}
		answer.Body.Close()
	}
}
