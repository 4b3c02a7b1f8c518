package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/arbiter-gateway/arbiter/control/api"
)

const (
	adminSocket = "admin.sock" // in the data directory
	// A delete answers at the latest when the longest lease has run out, one of
	// an earlier control before it.
	clientTimeout = 3 * time.Minute
	maxAnswer     = 64 << 20 // bytes: a page of servers with all that they may hold, or a policy's files
	maxSocketPath = 107      // bytes; sun_path of unix(7) without its NUL
)

// client speaks the JSON API over the admin socket.
type client struct {
	ctx  context.Context
	http *http.Client
}

// client connects with the first request.
func (p *program) client() (*client, error) {
	socket := p.file(adminSocket)
	if len(socket) > maxSocketPath {
		return nil, fmt.Errorf("the path of %s is longer than a unix socket's may be (%d bytes): use a shorter data directory", socket, maxSocketPath)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, &dialError{socket, err}
		}
		return conn, nil
	}
	return &client{p.ctx, &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout:   clientTimeout,
	}}, nil
}

// dialError says why nobody could be asked.
type dialError struct {
	socket string
	cause  error
}

func (e *dialError) Error() string {
	switch {
	case errors.Is(e.cause, fs.ErrNotExist), errors.Is(e.cause, syscall.ECONNREFUSED):
		return "arbiter is not running here: nobody answers at " + e.socket + "; start it with `make up` or `arbiter up`"
	case errors.Is(e.cause, fs.ErrPermission):
		return "no permission to use " + e.socket + ": be the user who runs arbiter"
	}
	return "connecting to " + e.socket + ": " + e.cause.Error()
}

func (e *dialError) Unwrap() error { return e.cause }

// do sends one request and returns the answer's body. The API's refusals come
// back as *api.Problem.
func (c *client) do(method, path string, in any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(c.ctx, method, "http://arbiter/api/v1"+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unwrapDial(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return answer, problem(resp, answer)
}

// unwrapDial drops what net/http writes around the reason.
func unwrapDial(err error) error {
	if dial, ok := errors.AsType[*dialError](err); ok {
		return dial
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("asking arbiter: %w", wrapped.Err)
	}
	return err
}

func problem(resp *http.Response, answer []byte) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	p := new(api.Problem)
	if err := json.Unmarshal(answer, p); err != nil || p.Status == 0 {
		return fmt.Errorf("arbiter answered %s", resp.Status)
	}
	return p
}

// ask sends one request and reads the answer; raw is for --json.
func ask[T any](c *client, method, path string, in any) (out T, raw []byte, err error) {
	raw, err = c.do(method, path, in)
	if err != nil {
		return out, raw, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, raw, errors.New("arbiter's answer cannot be read: is it of another version?")
	}
	return out, raw, nil
}

// all reads every page of a list.
func all[T any](c *client, path string) (api.List[T], error) {
	whole := api.List[T]{Items: []T{}}
	query := "?limit=200"
	for {
		page, _, err := ask[api.List[T]](c, http.MethodGet, path+query, nil)
		if err != nil {
			return whole, err
		}
		whole.Items = append(whole.Items, page.Items...)
		if page.Next == "" {
			return whole, nil
		}
		query = "?limit=200&cursor=" + url.QueryEscape(page.Next)
	}
}

// reach connects and finds a server, by id or name.
func (p *program) reach(server string) (to *client, path string, err error) {
	if to, err = p.client(); err != nil {
		return nil, "", err
	}
	path, err = to.serverPath(server)
	return to, path, err
}

// serverPath finds a server by id or name and returns its path in the API.
// A name never looks like a UUID, so what does is an id.
func (c *client) serverPath(arg string) (string, error) {
	if err := refuseSecret(arg); err != nil {
		return "", err
	}
	if id, err := uuid.Parse(arg); err == nil {
		return "/servers/" + id.String(), nil
	}
	found, _, err := ask[api.List[api.Server]](c, http.MethodGet, "/servers?name="+url.QueryEscape(arg), nil)
	if err != nil {
		return "", err
	}
	if len(found.Items) != 1 {
		return "", fmt.Errorf("there is no server %q: see `arbiter server list`", arg)
	}
	return "/servers/" + found.Items[0].ID, nil
}

// refuseSecret stops a token's value from going on where an id belongs.
func refuseSecret(arg string) error {
	if strings.HasPrefix(arg, "arb_") {
		return errors.New("this looks like the value of a token, where a name or an id belongs; the value is now in the history of your shell: delete that token")
	}
	return nil
}
