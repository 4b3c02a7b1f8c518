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
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	initializeCall = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	toolCall    = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	rightAnswer = `"text":"the answer of a tool"`
)

// client calls servers through one Envoy, over HTTP/2.
type client struct {
	origin string
	http   *http.Client
}

func newClient(dataDir string, listen netip.AddrPort) (*client, error) {
	pem, err := os.ReadFile(filepath.Join(dataDir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in ca.pem")
	}
	return &client{"https://" + listen.String(), &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
	}}}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) request(ctx context.Context, method, path string, t madeToken, body string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.origin+"/servers/"+t.server+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+t.Token)
	request.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// answer is a response, read whole and closed.
type answer struct {
	status int
	header http.Header
	text   []byte
}

func (c *client) exchange(ctx context.Context, path string, t madeToken, body string) (out answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	request, err := c.request(ctx, http.MethodPost, path, t, body)
	if err != nil {
		return out, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return out, err
	}
	defer response.Body.Close()
	out.status, out.header = response.StatusCode, response.Header
	out.text, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return out, err
}

// call calls a tool and wants the upstream's answer.
func (c *client) call(ctx context.Context, t madeToken) error {
	got, err := c.exchange(ctx, "/rpc", t, toolCall)
	if err != nil {
		return err
	}
	if got.status != http.StatusOK || !bytes.Contains(got.text, []byte(rightAnswer)) {
		return fmt.Errorf("a call was answered %d: %s", got.status, got.text)
	}
	return nil
}

// refused wants a call to be refused as one without a live token.
func (c *client) refused(ctx context.Context, t madeToken) error {
	got, err := c.exchange(ctx, "/rpc", t, toolCall)
	if err == nil && got.status != http.StatusUnauthorized {
		err = fmt.Errorf("a call with a deleted token was answered %d: %s", got.status, got.text)
	}
	return err
}

// session opens a legacy session and returns its id.
func (c *client) session(ctx context.Context, t madeToken) (string, error) {
	got, err := c.exchange(ctx, "/mcp", t, initializeCall)
	if err != nil {
		return "", err
	}
	session := got.header.Get("Mcp-Session-Id")
	if got.status != http.StatusOK || session == "" {
		return "", fmt.Errorf("initialize was answered %d without a session: %s", got.status, got.text)
	}
	return session, nil
}

// stream opens an SSE stream that says nothing more after its first event, and
// tells when it has ended.
func (c *client) stream(ctx context.Context, t madeToken, session string) (<-chan time.Time, error) {
	request, err := c.request(ctx, http.MethodGet, "/mcp", t, "")
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Mcp-Session-Id", session)
	answer, err := c.http.Do(request) //nolint:bodyclose // when it ends, below
	if err != nil {
		return nil, err
	}
	first := make([]byte, 512)
	n, err := answer.Body.Read(first)
	if answer.StatusCode != http.StatusOK || !bytes.HasPrefix(first[:n], []byte(":")) {
		return nil, errors.Join(fmt.Errorf("opening a stream: %d, %q", answer.StatusCode, first[:n]), err, answer.Body.Close())
	}
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = io.Copy(io.Discard, answer.Body) // how it ends does not matter
		ended <- time.Now()
		_ = answer.Body.Close()
	}()
	return ended, nil
}
