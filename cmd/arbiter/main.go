// Command arbiter is the gateway and the command line that runs it: one file
// per subcommand, each turning flags into a Config, a request or a check.
//
// What people type here goes to control over the admin socket and is judged
// there. Secrets never stand among the arguments: they come from a file or
// from standard input, and a new token's value is printed once.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/arbiter-gateway/arbiter/envoy"
)

// commands is the whole command line, one field per command.
type commands struct {
	Data string `env:"ARBITER_DATA" default:"./.arbiter" placeholder:"DIR" help:"Data directory (${env})."`
	JSON bool   `name:"json" help:"Print the API's JSON object."`

	Up       upCmd       `cmd:"" help:"Run everything in one process, with Envoy as a child."`
	Control  controlCmd  `cmd:"" help:"Run control alone: store, API, xDS server."`
	Extauthz extauthzCmd `cmd:"" help:"Run extauthz alone, beside an Envoy."`
	Envoy    envoyCmd    `cmd:"" help:"Run Envoy alone, beside an extauthz."`

	Server  serverCmd  `cmd:"" help:"Add, show and change the MCP servers behind the gateway."`
	Token   tokenCmd   `cmd:"" help:"Create, list and delete access tokens."`
	Policy  policyCmd  `cmd:"" help:"Check, test and try the rules that say who may do what."`
	Explain explainCmd `cmd:"" help:"Say why a request was allowed or denied."`
	Store   storeCmd   `cmd:"" help:"Look after the database."`
	Doctor  doctorCmd  `cmd:"" help:"Check that everything is there, connected and in time."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// program is what a command runs in. Tests make one of their own.
type program struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	envoy          func() (path, version string, err error) // finds the binary
	data           string                                   // data directory, as given: a socket's path must stay short
	json           bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := &program{ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, now: time.Now, envoy: envoy.Find}
	code := p.run(os.Args[1:])
	stop()
	os.Exit(code)
}

// run parses and carries out one command line. An error is one line on stderr
// and exit code 1.
func (p *program) run(args []string) int {
	var cmds commands
	helped := false
	parser, err := kong.New(&cmds,
		kong.Name("arbiter"),
		kong.Description("The gateway in front of a fleet of MCP servers."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		return p.fail(err)
	}
	command, err := parser.Parse(args)
	switch {
	case helped:
		return 0
	case err != nil:
		return p.fail(err)
	}
	p.data, p.json = cmds.Data, cmds.JSON
	if p.data == "" {
		p.data = "./.arbiter"
	}
	if err := command.Run(p); err != nil {
		return p.fail(err)
	}
	return 0
}

func (p *program) fail(err error) int {
	line := strings.Join(strings.Fields(err.Error()), " ")
	_, _ = fmt.Fprintln(p.stderr, "arbiter: "+printable(line))
	return 1
}

// file is a path in the data directory.
func (p *program) file(name string) string { return filepath.Join(p.data, name) }

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(p *program) error {
	if p.json {
		return p.printJSON(map[string]string{"version": version()})
	}
	return p.printLine("arbiter " + version())
}

// version is the module's version, or the revision that was built.
func version() string {
	info, found := debug.ReadBuildInfo()
	if !found {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	out := "devel"
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision" && len(setting.Value) >= 12:
			out += "-" + setting.Value[:12]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			out += "+changes"
		}
	}
	return out
}
