package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// api speaks to control, or to the health and metrics of extauthz, over a unix
// socket, as the command line does.
type api struct{ http *http.Client }

// workers is how many requests to the API are under way while it is filled.
const workers = 32

func newAPI(socket string) *api {
	return &api{&http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{
		MaxIdleConnsPerHost: workers,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

func (a *api) close() { a.http.CloseIdleConnections() }

// do sends one request; what is not 2xx is an error.
func (a *api) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := a.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s was answered %d: %s", method, path, answer.StatusCode, text)
	}
	return text, err
}

func (a *api) ask(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	text, err := a.do(ctx, method, "/api/v1"+path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

func (a *api) ready(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodGet, "/readyz", nil)
	return err
}

func (a *api) alive(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodGet, "/livez", nil)
	return err
}

// madeServer is what a create answers.
type madeServer struct {
	ID      string
	Applied bool
	Reason  string
}

func (a *api) addServer(ctx context.Context, name, url string) (madeServer, error) {
	var made madeServer
	err := a.ask(ctx, http.MethodPost, "/servers", map[string]string{"name": name, "rpc": url, "mcp": url}, &made)
	return made, err
}

// madeToken is a token with its value.
type madeToken struct{ ID, Token, server string }

func (a *api) addToken(ctx context.Context, server string) (madeToken, error) {
	made := madeToken{server: server}
	err := a.ask(ctx, http.MethodPost, "/servers/"+server+"/tokens", map[string]string{"name": "bench"}, &made)
	return made, err
}

// deleted is what a delete answers.
type deleted struct {
	Revocation struct {
		Replicas     int
		Confirmed    int `json:"replicas_confirmed"`
		Missing      []string
		StreamsEnded int `json:"streams_ended"`
		Milliseconds int
	}
}

// deleteToken fails unless every replica has confirmed.
func (a *api) deleteToken(ctx context.Context, t madeToken) (deleted, error) {
	var out deleted
	err := a.ask(ctx, http.MethodDelete, "/servers/"+t.server+"/tokens/"+t.ID, nil, &out)
	if err == nil && (len(out.Revocation.Missing) > 0 || out.Revocation.Confirmed != out.Revocation.Replicas) {
		err = fmt.Errorf("deleting a token: %d of %d replicas confirmed, %v are missing",
			out.Revocation.Confirmed, out.Revocation.Replicas, out.Revocation.Missing)
	}
	return out, err
}

// metric reads one sample without labels.
func (a *api) metric(ctx context.Context, name string) (float64, error) {
	text, err := a.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// heap is what a role's live objects take: of extauthz after a collection that
// this asks for, of control at its last one (which then grew to twice as much
// before the next).
func (a *api) heap(ctx context.Context, collect bool) (int64, error) {
	if !collect {
		next, err := a.metric(ctx, "go_memstats_next_gc_bytes")
		return int64(next / 2), err
	}
	// Twice: what has a finalizer or lies in a pool goes with the second one.
	for range 2 {
		if _, err := a.do(ctx, http.MethodGet, "/debug/pprof/heap?gc=1", nil); err != nil {
			return 0, err
		}
	}
	bytes, err := a.metric(ctx, "go_memstats_heap_alloc_bytes")
	return int64(bytes), err
}
