// Package clients drives the MCP SDKs that people use, unmodified, against one
// URL: Go, Python (mcp 1.x and 2.x, fastmcp) and TypeScript (sdk 1.x, client
// 2.x), each pinned. All of them do the same steps and report each one.
//
// Place in the flow: they stand where callers stand, in end-to-end tests. What
// they are given is a URL, a CA file and a file with a header; a credential is
// never in an argument or in the environment.
package clients

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed fetch.sh python/*.py python/*.txt node/*.mjs node/package.json node/package-lock.json node/.npmrc
var programs embed.FS

// Era says how a client negotiates the revision.
type Era string

// The eras. The SDKs' own default is Auto, but for TypeScript: there it is Legacy.
const (
	Default Era = ""       // as the SDK does when it is told nothing
	Legacy  Era = "legacy" // the handshake, at once
	Auto    Era = "auto"   // where the SDK can: ask for 2026-07-28 first, fall back to the handshake
)

// ModernRevision is what a client that can ends with on a server that allows it.
const ModernRevision = "2026-07-28"

// LegacyRevision is what every client here ends with after a handshake.
const LegacyRevision = "2025-11-25"

// Env is what one run is given.
type Env struct {
	URL        string // of the MCP endpoint
	CA         string // a PEM file that verifies it; empty for http
	HeaderFile string // "Name: value" lines, as for curl -H @FILE; empty for none
	Era        Era
	// DeniedTool, if set, is called with {"text": "x"}: it must be denied with
	// words (an isError result), and the session must go on.
	DeniedTool string
	// Cut, if set, is called once the client has had notifications over its GET
	// stream: it breaks that stream. Then the session must go on, with
	// notifications. It is not called in a run that ended with ModernRevision.
	Cut func(context.Context) error
}

// Step is one thing a client did. The names are, in this order: connect (Detail
// is the revision), list, echo, add, progress, ask, with a DeniedTool denied
// (Detail is what the caller was told) and after-denied; in the legacy era
// notifications, and with a Cut ready-to-cut and after-cut; close.
type Step struct {
	Name   string `json:"step"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// ErrSteps says that a client did not do every step, or not well.
var ErrSteps = errors.New("not every step went well")

// Client is one SDK, ready to run.
type Client struct {
	Name   string // "python mcp 1.30.0"
	Modern bool   // it can speak ModernRevision
	run    func(context.Context, Env, func(Step)) error
}

// All installs what is not installed yet (minutes the first time, then neither
// time nor network) and returns every client. dir is an empty directory that
// outlives them.
func All(ctx context.Context, dir string) ([]Client, error) {
	if err := os.CopyFS(dir, programs); err != nil {
		return nil, fmt.Errorf("unpacking the clients: %w", err)
	}
	fetch := exec.CommandContext(ctx, "sh", filepath.Join(dir, "fetch.sh")) //nolint:gosec // unpacked above
	fetch.Stderr = os.Stderr
	out, err := fetch.Output()
	if err != nil {
		return nil, fmt.Errorf("installing the clients: %w", err)
	}
	installed := strings.TrimSpace(string(out))
	// node looks for packages beside the program that asks for them.
	if err := os.Symlink(filepath.Join(installed, "node", "node_modules"), filepath.Join(dir, "node", "node_modules")); err != nil {
		return nil, fmt.Errorf("unpacking the clients: %w", err)
	}
	python := func(name string) []string {
		return []string{filepath.Join(installed, name, "bin", "python"), "-B", filepath.Join(dir, "python", name+".py")}
	}
	node := func(name string) []string {
		return []string{cmp.Or(os.Getenv("NODE"), "node"), filepath.Join(dir, "node", name+".mjs")}
	}
	return []Client{
		{Name: "go-sdk 1.8.0", Modern: true, run: runGo},
		{Name: "python mcp 1.30.0", run: program(python("mcp1"))},
		{Name: "python mcp 2.3.0", Modern: true, run: program(python("mcp2"))},
		{Name: "python fastmcp 4.1.2", Modern: true, run: program(python("fastmcp4"))},
		{Name: "typescript sdk 1.32.2", run: program(node("sdk1"))},
		{Name: "typescript client 2.4.0", Modern: true, run: program(node("client2"))},
	}, nil
}

// Run does every step and returns them. The error is ErrSteps, with the names
// and reasons, if one is missing or not OK.
func (c Client) Run(ctx context.Context, env Env) ([]Step, error) {
	var steps []Step
	err := c.run(ctx, env, func(s Step) { steps = append(steps, s) })
	return steps, errors.Join(check(steps, env), err)
}

// check compares what was done with what should have been.
func check(steps []Step, env Env) error {
	var done, bad []string
	revision := ""
	for _, step := range steps {
		done = append(done, step.Name)
		if !step.OK {
			bad = append(bad, step.Name+": "+step.Detail)
		}
		if step.Name == "connect" {
			revision = step.Detail
		}
	}
	if want := expected(env, revision); bad == nil && !slices.Equal(done, want) {
		bad = append(bad, fmt.Sprintf("did %v, not %v", done, want))
	}
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrSteps, strings.Join(bad, "; "))
}

func expected(env Env, revision string) []string {
	steps := []string{"connect", "list", "echo", "add", "progress", "ask"}
	if env.DeniedTool != "" {
		steps = append(steps, "denied", "after-denied")
	}
	if revision < ModernRevision {
		steps = append(steps, "notifications")
		if env.Cut != nil {
			steps = append(steps, "ready-to-cut", "after-cut")
		}
	}
	return append(steps, "close")
}
