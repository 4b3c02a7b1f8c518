package main

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
)

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make an access token; its value is printed once."`
	List   tokenListCmd   `cmd:"" help:"List the access tokens of a server."`
	Delete tokenDeleteCmd `cmd:"" help:"Delete an access token; answers when no replica accepts it any more."`
}

type tokenCreateCmd struct {
	serverArg
	Name    string   `placeholder:"NAME" help:"What it is for."`
	Expires string   `placeholder:"TIME" help:"When it ends, from now: 30d, 12h, 90m (default: never)."`
	Scope   []string `sep:"none" placeholder:"SCOPE" help:"Narrow it to mcp:connect, tools:call, tools:call:TOOL or identity:bootstrap. Repeatable."`
}

// Run makes the token. Only its value goes to standard output, so that it can
// go straight into a file.
func (c *tokenCreateCmd) Run(p *program) error {
	fields := map[string]any{}
	if c.Name != "" {
		fields["name"] = c.Name
	}
	if c.Expires != "" {
		seconds, err := parseExpiry(c.Expires)
		if err != nil {
			return fmt.Errorf("--expires: %w", err)
		}
		fields["expires_in"] = seconds
	}
	if len(c.Scope) > 0 {
		fields["scopes"] = c.Scope
	}
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	made, raw, err := ask[api.Token](to, http.MethodPost, path+"/tokens", fields)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	p.note("token %s for %s, expires: %s; this value is shown once, keep it now:", made.ID, c.Server, when(made.ExpiresAt, "never"))
	return p.printLine(made.Token)
}

type tokenListCmd struct{ serverArg }

// Run lists all pages.
func (c *tokenListCmd) Run(p *program) error {
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	list, err := all[api.Token](to, path+"/tokens")
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(list)
	}
	rows := [][]string{{"ID", "NAME", "SCOPES", "CREATED", "EXPIRES", "LAST USED"}}
	for _, t := range list.Items {
		scopes := "not narrowed"
		if len(t.Scopes) > 0 {
			scopes = strings.Join(t.Scopes, " ")
		}
		rows = append(rows, []string{t.ID, t.Name, scopes, when(t.CreatedAt, ""), when(t.ExpiresAt, "never"), when(t.LastUsedAt, "never")})
	}
	return p.printTable(rows)
}

type tokenDeleteCmd struct {
	serverArg
	Token string `arg:"" help:"Id of the token, as in the list."`
}

// Run deletes the token.
func (c *tokenDeleteCmd) Run(p *program) error {
	if err := refuseSecret(c.Token); err != nil {
		return err
	}
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	return p.delete(to, path+"/tokens/"+url.PathEscape(c.Token))
}

// parseExpiry reads days, or what time.ParseDuration reads, as seconds.
func parseExpiry(text string) (int64, error) {
	errForm := errors.New("must be a time like 30d, 12h or 90m")
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n < 1 {
			return 0, errForm
		}
		return n * 24 * 60 * 60, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, errForm
	}
	return int64(math.Floor(d.Seconds())), nil
}
