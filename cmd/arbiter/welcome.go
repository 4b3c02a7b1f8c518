package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/internal/demo"
	"github.com/arbiter-gateway/arbiter/internal/secret"
)

const (
	demoName     = "demo"
	demoToken    = "demo, made by arbiter up" // name of the token; the one of the last start is deleted
	demoLifetime = 24 * time.Hour
)

// welcome registers the demo server and prints what to do next. It goes the
// way that people go: over the API on the admin socket.
func (r *roles) welcome(ctx context.Context, tools *demo.Server) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // told to stop
	}
	if tools == nil {
		return r.ready()
	}
	c, err := r.p.client()
	if err != nil {
		return err
	}
	c.ctx = ctx
	id, err := registerDemo(c, tools)
	if errors.Is(err, errForeignDemo) {
		r.slog.Warn("the demo server is not registered", "reason", err)
		return r.ready()
	}
	if err != nil {
		return fmt.Errorf("registering the demo server: %w", err)
	}
	value, err := renewDemoToken(c, id)
	if err != nil {
		return fmt.Errorf("making the demo token: %w", err)
	}
	if err := r.p.writeHeader(value); err != nil {
		return err
	}
	_, err = fmt.Fprint(r.p.stdout, r.readyBlock(id))
	return err
}

// ready is what is printed where there is no demo server.
func (r *roles) ready() error {
	_, err := fmt.Fprintf(r.p.stdout, "\nArbiter is ready at %s\n\n  policy     %s\n\nCtrl-C ends it.\n", r.settings.BaseURL, r.policyFrom())
	return err
}

// demoLabel marks the record that `arbiter up` made and may change.
const demoLabel = "made-by"

var errForeignDemo = errors.New("there is another server with the name " + demoName + ": rename it, or start with --no-demo")

// registerDemo adds the demo server, or tells its record where it is now. A
// server of the same name that somebody else made is left alone.
func registerDemo(c *client, tools *demo.Server) (id string, err error) {
	mcp, rpc := "http://"+tools.Addr()+"/mcp", "http://"+tools.Addr()+"/rpc"
	found, _, err := ask[api.List[api.Server]](c, http.MethodGet, "/servers?name="+demoName, nil)
	if err != nil {
		return "", err
	}
	values := map[string]any{"mcp": mcp, "rpc": rpc, "eras": []string{"legacy", "modern"}}
	if len(found.Items) == 1 {
		if found.Items[0].Labels[demoLabel] != "arbiter-up" {
			return "", errForeignDemo
		}
		_, _, err = ask[api.Server](c, http.MethodPatch, "/servers/"+found.Items[0].ID, values)
		return found.Items[0].ID, err
	}
	values["name"], values["labels"] = demoName, map[string]string{demoLabel: "arbiter-up"}
	made, _, err := ask[api.Server](c, http.MethodPost, "/servers", values)
	return made.ID, err
}

// renewDemoToken deletes the token of the last start and makes a fresh one.
func renewDemoToken(c *client, server string) (secret.Text, error) {
	path := "/servers/" + server + "/tokens"
	old, err := all[api.Token](c, path)
	if err != nil {
		return secret.Text{}, err
	}
	for _, t := range old.Items {
		if t.Name != demoToken {
			continue
		}
		if _, err := c.do(http.MethodDelete, path+"/"+t.ID, nil); err != nil {
			return secret.Text{}, err
		}
	}
	made, _, err := ask[api.Token](c, http.MethodPost, path, map[string]any{
		"name": demoToken, "expires_in": int(demoLifetime.Seconds()),
	})
	return secret.New(made.Token), err
}

// writeHeader keeps the token where curl reads it, for this user only.
func (p *program) writeHeader(value secret.Text) error {
	if err := p.writeFile(demoHeaderFile, []byte("Authorization: Bearer "+value.Reveal()+"\n")); err != nil {
		return fmt.Errorf("keeping the demo token: %w", err)
	}
	return nil
}

func (r *roles) readyBlock(id string) string {
	ca := filepath.Clean(r.p.file("ca.pem"))
	curl := "curl -sS --cacert " + ca
	if r.settings.TLSCert != "" {
		ca, curl = "(the one of "+r.settings.TLSCert+")", "curl -sS"
	}
	curl += " -H @" + filepath.Clean(r.p.file(demoHeaderFile)) + " -H 'Content-Type: application/json'"
	at := r.settings.BaseURL + "/servers/" + id
	return fmt.Sprintf(`
Arbiter is ready.

  base URL   %s
  CA file    %s
  policy     %s

Call a tool on /rpc, one POST and one JSON answer:

  %s -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}' %s/rpc

Open a session on /mcp and list the tools in it:

  SESSION=$(%s -o /dev/null -D - -H 'Accept: application/json, text/event-stream' -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' %s/mcp | sed -n 's/^mcp-session-id: *//Ip' | tr -d '\r') && %s -H 'Accept: application/json, text/event-stream' -H "Mcp-Session-Id: $SESSION" -d '{"jsonrpc":"2.0","id":2,"method":"tools/list"}' %s/mcp

Ctrl-C ends it.
`, r.settings.BaseURL, ca, r.policyFrom(), curl, at, curl, at, curl, at)
}
