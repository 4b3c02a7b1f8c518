package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/control/api"
)

type serverToolsCmd struct {
	serverArg
	Tool string `arg:"" optional:"" help:"Show the definitions of one tool: the approved one, and the one that was listed last."`
}

// Run lists what is remembered of the server's tools.
func (c *serverToolsCmd) Run(p *program) error {
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	if c.Tool != "" {
		path += "/tools?name=" + url.QueryEscape(c.Tool)
	} else {
		path += "/tools"
	}
	list, raw, err := ask[api.List[api.Tool]](to, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	switch {
	case p.json:
		return p.printRaw(raw)
	case c.Tool != "":
		return c.show(p, list.Items)
	}
	rows := [][]string{{"TOOL", "STATE", "FIRST SEEN", "CHANGED", "DEFINITION"}}
	for _, t := range list.Items {
		rows = append(rows, []string{printableName(t.Name), t.State, when(t.FirstAt, ""), when(t.ChangedAt, ""), t.Seen[:min(16, len(t.Seen))]})
	}
	return p.printTable(rows)
}

func (c *serverToolsCmd) show(p *program, tools []api.Tool) error {
	if len(tools) == 0 {
		return fmt.Errorf("%s has listed no tool of this name", c.Server)
	}
	t := tools[0]
	text := "approved " + t.Approved + "\n" + indented(t.WasText)
	if t.Seen != t.Approved {
		text += "\nlisted   " + t.Seen + "\n" + indented(t.IsText)
	}
	return p.printLine(text)
}

func indented(text jsontext.Value) string {
	if len(text) == 0 {
		return "(longer than 16 KiB: it is not kept)"
	}
	if err := text.Indent(); err != nil {
		return "(damaged)"
	}
	return string(text)
}

// printableName keeps a server's text from writing to the terminal.
func printableName(name string) string {
	quoted := fmt.Sprintf("%q", name)
	if strings.Trim(quoted, `"`) == name {
		return name
	}
	return quoted
}

type serverApproveToolsCmd struct {
	serverArg
	Tool []string `arg:"" optional:"" help:"Names of tools (default: all that have changed)."`
	Seen string   `placeholder:"HASH" help:"Of one tool: approve it only if this is still the definition that was listed last."`
}

// Run approves definitions as they were listed last.
func (c *serverApproveToolsCmd) Run(p *program) error {
	fields := map[string]any{}
	switch {
	case c.Seen != "" && len(c.Tool) != 1:
		return fmt.Errorf("--seen: name the one tool that it is the hash of")
	case c.Seen != "":
		fields["seen"] = map[string]string{c.Tool[0]: c.Seen}
	case len(c.Tool) > 0:
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

type serverForgetToolsCmd struct{ serverArg }

// Run forgets them.
func (c *serverForgetToolsCmd) Run(p *program) error {
	to, path, err := p.reach(c.Server)
	if err != nil {
		return err
	}
	done, raw, err := ask[api.ToolsForgotten](to, http.MethodDelete, path+"/tools", nil)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	p.note("forgot %d tools of %s: what it lists next is approved", done.Forgotten, c.Server)
	return nil
}

// checkTools says whether definitions wait for somebody to look at them.
func checkTools(at *patient) (string, error) {
	if n := at.status.WaitingTools; n > 0 {
		return "", fmt.Errorf("%d have changed since they were approved: `arbiter server tools SERVER` shows them", n)
	}
	return "none has changed since it was approved", nil
}
