// Command scale measures what many servers, many tokens and many replicas cost:
// memory, the time until one more server can be used, starts, churn, and how
// long a delete takes with its proof. docs/performance.md says how to read what
// it prints.
//
// Place in the flow: it stands where clients and the command line stand, and
// starts the real roles as processes of its own, which it ends by their ids. It
// trusts this machine, and sends nothing but to 127.0.0.1 and unix sockets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/report"
)

// options are what one run is told.
type options struct {
	servers  []int  // numbers of servers, ascending
	tokens   int    // made, used, and later made and deleted
	pairs    []int  // numbers of extauthz, each with an Envoy
	deletes  int    // per number of pairs
	keep     string // directory for logs; "": they go with the run
	write    string
	scaling  bool
	revoking bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	servers := flags.String("servers", "0,10000,100000", "`numbers` of servers, ascending")
	flags.IntVar(&o.tokens, "tokens", 100_000, "`number` of tokens")
	pairs := flags.String("pairs", "1,4,16", "`numbers` of extauthz, each with an Envoy, for deletes")
	flags.IntVar(&o.deletes, "deletes", 200, "`number` of deletes per number of pairs")
	parts := flags.String("parts", "scale,revocation", "which `parts`")
	flags.StringVar(&o.keep, "logs", "", "keep the logs of the processes in this `directory`")
	flags.StringVar(&o.write, "write", "", "update the figures in this markdown `file`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err1, err2 error
	o.servers, err1 = numbers(*servers)
	o.pairs, err2 = numbers(*pairs)
	for part := range strings.SplitSeq(*parts, ",") {
		o.scaling = o.scaling || part == "scale"
		o.revoking = o.revoking || part == "revocation"
	}
	if err := errors.Join(err1, err2); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.tokens < 1 || o.deletes < 1 || o.pairs[0] < 1 || !o.scaling && !o.revoking {
		return o, errors.New("wrong arguments: see -help")
	}
	return o, nil
}

func numbers(text string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || len(out) > 0 && n <= out[len(out)-1] {
			return nil, fmt.Errorf("%q is no list of ascending numbers", text)
		}
		out = append(out, n)
	}
	return out, nil
}

// program is one run.
type program struct {
	options

	*fleet
	began time.Time
	args  string
	out   io.Writer
}

// say tells whoever waits how far it is. What cannot be printed is no fault.
func (p *program) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, "%6.1fs  "+format+"\n", append([]any{time.Since(p.began).Seconds()}, args...)...)
}

// run is one whole measurement, from the root of the repository.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if _, err := os.Stat("cmd/arbiter"); err != nil {
		return errors.New("run it from the root of the repository: make bench-scale")
	}
	r, err := newFleet(ctx, o.keep)
	if err != nil {
		return err
	}
	defer r.close()
	p := &program{options: o, fleet: r, began: time.Now(), args: shown(args), out: out}
	for _, part := range []struct {
		name    string
		wanted  bool
		measure func(context.Context) (string, error)
	}{{"scale", o.scaling, p.scale}, {"revocation", o.revoking, p.revocation}} {
		if !part.wanted {
			continue
		}
		before, err := r.usage()
		if err != nil {
			return err
		}
		text, err := part.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		after, err := r.usage()
		if err != nil {
			return err
		}
		if err := p.publish(ctx, part.name, text+"\n"+others(before, after)); err != nil {
			return err
		}
	}
	return nil
}

// shown are the arguments as the figures tell them: where logs went is nobody's
// business.
func shown(args []string) string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch name := strings.TrimLeft(args[i], "-"); {
		case name == "logs":
			i++
		case !strings.HasPrefix(name, "logs="):
			out = append(out, args[i])
		}
	}
	return strings.Join(out, " ")
}

// publish prints a section, and writes it where it is asked for.
func (p *program) publish(ctx context.Context, section, text string) error {
	text = report.Machine(ctx, p.began, [2]string{"command", "`" + strings.TrimSpace("go run ./bench/scale "+p.args) + "`"}) + "\n" + text
	if _, err := fmt.Fprintf(p.out, "\n%s\n", text); err != nil || p.write == "" {
		return err
	}
	return report.Write(p.write, section, text)
}
