// Command bench measures what authentication costs: requests per second, CPU
// per request of every process, latency, of Envoy alone, of Envoy with a stock
// no-op ext_authz, and of Envoy with Arbiter, interleaved in one run on
// loopback. docs/performance.md says how to read what it prints.
//
// Place in the flow: it stands where clients stand, and starts everything else
// as processes of its own, which it ends by their ids. It trusts this machine,
// and sends nothing but to 127.0.0.1 and unix sockets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what one run is told.
type options struct {
	quick    bool
	policies bool
	rounds   int
	measure  time.Duration
	half     time.Duration
	arms     []string
	binary   string
	profile  bool
	write    string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "quick", false, "two short rounds, about three minutes")
	flags.IntVar(&o.rounds, "rounds", 8, "`number` of rounds, even: one goes through the arms forwards, the next one backwards")
	flags.DurationVar(&o.measure, "measure", 6*time.Second, "`time` at saturation, per arm and round")
	flags.DurationVar(&o.half, "half", 6*time.Second, "`time` at half load, per arm and round; 0: none")
	flags.BoolVar(&o.policies, "policies", false, "what policies cost, against a server that embeds stock OPA, instead")
	arms := flags.String("arms", "", "which `arms`, by name; default all")
	flags.StringVar(&o.binary, "binary", "", "another `build` of arbiter, measured beside this tree's as arm "+armOther)
	flags.BoolVar(&o.profile, "profile", false, "after all rounds, a CPU profile of extauthz in arm "+armRPC)
	flags.StringVar(&o.write, "write", "", "update the figures, and with -profile the profile, in this markdown `file`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.rounds, o.measure, o.half = 2, 4*time.Second, 3*time.Second
	}
	switch {
	case *arms != "":
		o.arms = strings.Split(*arms, ",")
	case o.policies:
		o.arms = slices.Clone(policyArms)
	default:
		o.arms = slices.Clone(allArms)
	}
	if o.binary != "" {
		o.arms = append(o.arms, armOther)
	}
	if flags.NArg() > 0 || o.rounds < 2 || o.rounds%2 == 1 || o.measure < time.Second || o.half < 0 {
		return o, errors.New("wrong arguments: see -help")
	}
	return o, nil
}

// run is one whole benchmark, from the root of the repository.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	h2load, err := findH2load()
	if err != nil {
		return err
	}
	if _, err := os.Stat("cmd/arbiter"); err != nil {
		return errors.New("run it from the root of the repository: make bench")
	}
	dir, err := os.MkdirTemp("", "arbiter-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{fleet: &fleet{dir: dir}}
	defer b.stop()
	if err := b.prepare(ctx, o); err != nil {
		return err
	}
	m := &measurement{bench: b, options: o, h2load: h2load, out: out}
	if err := m.all(ctx); err != nil {
		return err
	}
	if err := m.report(ctx, args); err != nil || !o.profile {
		return err
	}
	return m.profile(ctx)
}
