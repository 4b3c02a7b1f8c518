package main

import (
	"net/http"

	"github.com/arbiter-gateway/arbiter/control/api"
)

type serverToolsCmd struct{ serverArg }

// Run lists what is remembered of the server's tools.
func (c *serverToolsCmd) Run(p *program) error {
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	list, raw, err := ask[api.List[api.Tool]](to, http.MethodGet, path+"/tools", nil)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	rows := [][]string{{"TOOL", "STATE", "FIRST SEEN", "CHANGED", "DEFINITION"}}
	for _, t := range list.Items {
		rows = append(rows, []string{t.Name, t.State, when(t.FirstAt, ""), when(t.ChangedAt, ""), t.Seen[:min(16, len(t.Seen))]})
	}
	return p.printTable(rows)
}

type serverApproveToolsCmd struct {
	serverArg
	Tool []string `arg:"" optional:"" help:"Names of tools (default: all that have changed)."`
}

// Run approves definitions as they were listed last.
func (c *serverApproveToolsCmd) Run(p *program) error {
	fields := map[string]any{}
	if len(c.Tool) > 0 {
		fields["names"] = c.Tool
	}
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	done, raw, err := ask[api.ToolsApproved](to, http.MethodPost, path+"/tools/approve", fields)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	p.note("approved %d changed definitions of %s", done.Approved, c.Server)
	return nil
}
