package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const (
	bothKinds = "application/json, text/event-stream"
	openerRPC = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
)

// toolCall is a tools/call of exactly size bytes; its id is the upstream's.
func toolCall(size int) string {
	const head, tail = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"`, `"}}}`
	return head + strings.Repeat("x", max(0, size-len(head)-len(tail))) + tail
}

// call is one request.
type call struct {
	method, url string
	headers     []string // "name: value"
	body        string
}

// answer is what came back, read whole.
type answer struct {
	status, major int // HTTP status and version
	header        http.Header
	text          []byte
}

// ask sends one request and reads its answer.
func ask(ctx context.Context, client *http.Client, c call) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	request, err := newRequest(ctx, c)
	if err != nil {
		return answer{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	return answer{response.StatusCode, response.ProtoMajor, response.Header, text}, err
}

func newRequest(ctx context.Context, c call) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	for _, header := range c.headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	return request, nil
}

// secureClient speaks HTTP/2 to a gateway whose certificate an arbiter made.
func secureClient(dataDir string) (*http.Client, error) {
	pem, err := os.ReadFile(filepath.Join(dataDir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in ca.pem")
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
	}}, nil
}

// initialize opens a session and returns its id.
func initialize(ctx context.Context, client *http.Client, url string, headers []string) (string, error) {
	got, err := ask(ctx, client, call{http.MethodPost, url, headers, openerRPC})
	if err != nil {
		return "", err
	}
	session := got.header.Get("Mcp-Session-Id")
	if got.status != http.StatusOK || session == "" {
		return "", fmt.Errorf("initialize was answered %d without a session: %s", got.status, got.text)
	}
	return session, nil
}

// streams are idle SSE streams that stay open until they are closed.
type streams struct {
	cancel context.CancelFunc
	bodies []io.Closer
}

// holder is one credential's share of the idle streams.
type holder struct {
	url     string
	headers []string
	count   int
}

// openStreams opens every holder's streams, each holder's on connections of its
// own, and has read the first bytes of each when it returns.
func openStreams(ctx context.Context, dataDir string, holders []holder) (*streams, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &streams{cancel: cancel}
	for _, h := range holders {
		client, err := secureClient(dataDir)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		for range h.count {
			body, err := openStream(ctx, client, h)
			if err != nil {
				return nil, errors.Join(err, s.close())
			}
			s.bodies = append(s.bodies, body)
		}
	}
	return s, nil
}

func openStream(ctx context.Context, client *http.Client, h holder) (io.Closer, error) {
	request, err := newRequest(ctx, call{http.MethodGet, h.url, h.headers, ""})
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	first := make([]byte, 16)
	n, err := response.Body.Read(first)
	if response.StatusCode != http.StatusOK || !bytes.HasPrefix(first[:n], []byte(":")) {
		return nil, errors.Join(fmt.Errorf("opening a stream: %d, %q", response.StatusCode, first[:n]), err, response.Body.Close())
	}
	return response.Body, nil
}

// close ends all streams.
func (s *streams) close() error {
	s.cancel()
	var failed error
	for _, body := range s.bodies {
		failed = errors.Join(failed, body.Close())
	}
	return failed
}
