package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
)

type serverCmd struct {
	Add          serverAddCmd          `cmd:"" help:"Put a server behind the gateway."`
	List         serverListCmd         `cmd:"" help:"List all servers."`
	Show         serverShowCmd         `cmd:"" help:"Show one server."`
	Update       serverUpdateCmd       `cmd:"" help:"Change a server; what is not given stays, an empty value takes back what was set."`
	Tools        serverToolsCmd        `cmd:"" help:"List the tools that a server has listed, and which have changed since."`
	ApproveTools serverApproveToolsCmd `cmd:"" help:"Approve changed tools as they were listed last."`
	ForgetTools  serverForgetToolsCmd  `cmd:"" help:"Forget the tools of a server: what it lists next is approved."`
	Disable      serverDisableCmd      `cmd:"" help:"Refuse all calls to a server and cut its streams."`
	Enable       serverEnableCmd       `cmd:"" help:"Allow calls to a server again."`
	Delete       serverDeleteCmd       `cmd:"" help:"Delete a server and all of its credentials."`
}

// serverArg names one server.
type serverArg struct {
	Server string `arg:"" help:"Name or UUID of the server."`
}

type serverAddCmd struct {
	Name string `arg:"" help:"A name that no other server has."`
	serverFlags
}

// Run adds the server.
func (c *serverAddCmd) Run(p *program) error {
	if err := refuseSecret(c.Name); err != nil {
		return err
	}
	fields, err := c.fields(p)
	if err != nil {
		return err
	}
	fields["name"] = c.Name
	return p.changeServer(http.MethodPost, "", "/servers", fields)
}

type serverUpdateCmd struct {
	serverArg
	Rename string `name:"name" placeholder:"NAME" help:"A new name."`
	serverFlags
}

// Run sends what was given.
func (c *serverUpdateCmd) Run(p *program) error {
	fields, err := c.fields(p)
	if err != nil {
		return err
	}
	if c.Rename != "" {
		fields["name"] = c.Rename
	}
	if len(fields) == 0 {
		return errors.New("nothing to change was given: see `arbiter server update --help`")
	}
	return p.changeServer(http.MethodPatch, c.Server, "", fields)
}

type serverEnableCmd struct{ serverArg }

// Run enables the server.
func (c *serverEnableCmd) Run(p *program) error {
	return p.changeServer(http.MethodPost, c.Server, "/enable", nil)
}

// changeServer sends a change and shows the server as it is then. Without arg
// path is whole, else it follows the server's.
func (p *program) changeServer(method, arg, path string, fields any) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	if arg != "" {
		at, err := c.serverPath(arg)
		if err != nil {
			return err
		}
		path = at + path
	}
	changed, raw, err := ask[api.ChangedServer](c, method, path, fields)
	if err != nil {
		return err
	}
	p.noteApplied(changed.Applied)
	if len(changed.HeadersDropped) > 0 {
		p.note("note: an upstream is at another place now, so its stored headers were dropped (%s); give them again with --header",
			strings.Join(changed.HeadersDropped, ", "))
	}
	if p.json {
		return p.printRaw(raw)
	}
	return p.printServer(c, changed.Server)
}

func (p *program) noteApplied(a api.Applied) {
	if !a.Applied {
		p.note("note: %s", a.Reason)
	}
}

type serverListCmd struct{}

// Run lists all pages.
func (serverListCmd) Run(p *program) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	list, err := all[api.Server](c, "/servers")
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(list)
	}
	rows := [][]string{{"NAME", "ID", "STATE", "ERAS", "MCP", "RPC"}}
	for _, s := range list.Items {
		rows = append(rows, []string{s.Name, s.ID, state(s), strings.Join(s.Eras, ","), s.MCP, s.RPC})
	}
	return p.printTable(rows)
}

type serverShowCmd struct{ serverArg }

// Run shows the server.
func (c *serverShowCmd) Run(p *program) error {
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	srv, raw, err := ask[api.Server](to, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	return p.printServer(to, srv)
}

type serverDisableCmd struct{ serverArg }

// Run disables the server.
func (c *serverDisableCmd) Run(p *program) error {
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	out, raw, err := ask[api.DisabledServer](to, http.MethodPost, path+"/disable", nil)
	if err != nil {
		return err
	}
	p.noteApplied(out.Applied)
	if p.json {
		return p.printRaw(raw)
	}
	return p.printLine("disabled " + out.ID + ": " + revocationText(out.Revocation))
}

type serverDeleteCmd struct{ serverArg }

// Run deletes the server.
func (c *serverDeleteCmd) Run(p *program) error {
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	return p.delete(to, path)
}

// delete deletes what path names and says how far it is ended.
func (p *program) delete(c *client, path string) error {
	out, raw, err := ask[api.Deleted](c, http.MethodDelete, path, nil)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	return p.printLine("deleted " + out.ID + ": " + revocationText(out.Revocation))
}

func revocationText(r api.Revocation) string {
	text := fmt.Sprintf("%d of %d replicas confirmed", r.ReplicasConfirmed, r.Replicas)
	text += fmt.Sprintf(", %d streams ended, %d ms", r.StreamsEnded, r.Milliseconds)
	if len(r.Missing) > 0 {
		text += "; without an answer, so they refuse until they have it: " + strings.Join(r.Missing, ", ")
	}
	return text
}

func state(s api.Server) string {
	if s.Enabled {
		return "enabled"
	}
	return "disabled"
}

func (p *program) printServer(c *client, s api.Server) error {
	rows := [][]string{
		{"name", s.Name},
		{"id", s.ID},
		{"state", state(s)},
	}
	if status, _, err := ask[api.Status](c, http.MethodGet, "/status", nil); err == nil && status.BaseURL != "" {
		rows = append(rows, []string{"reach it at", status.BaseURL + "/servers/" + s.ID + "/mcp (or /rpc)"})
	}
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		labels = append(labels, key+"="+s.Labels[key])
	}
	roots := "the system's roots"
	if s.CA != "" {
		roots = strconv.Itoa(strings.Count(s.CA, "-----BEGIN")) + " certificate(s) of its own"
	}
	rows = append(rows,
		[]string{"mcp upstream", s.MCP},
		[]string{"rpc upstream", s.RPC},
		[]string{"verified by", roots},
		[]string{"headers", strings.Join(s.HeaderNames, ", ")},
		[]string{"eras", strings.Join(s.Eras, ", ")},
		[]string{"origins", strings.Join(s.AllowedOrigins, ", ")},
		[]string{"labels", strings.Join(labels, ", ")},
		[]string{"max body", strconv.Itoa(s.Limits.MaxBody) + " bytes"},
		[]string{"call limit", (time.Duration(s.Limits.CallLimitSeconds) * time.Second).String()},
		[]string{"batches", strconv.FormatBool(s.Batches)},
		[]string{"denials", s.Denials},
	)
	rows = append(rows, policyRows(s)...)
	rows = append(rows,
		[]string{"created", when(s.CreatedAt, "")},
		[]string{"updated", when(s.UpdatedAt, "") + " (revision " + strconv.FormatInt(s.Revision, 10) + ")"},
	)
	return p.printTable(rows)
}
