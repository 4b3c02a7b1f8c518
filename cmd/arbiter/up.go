package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/arbiter-gateway/arbiter/control"
	"github.com/arbiter-gateway/arbiter/envoy"
	"github.com/arbiter-gateway/arbiter/internal/demo"
	"github.com/arbiter-gateway/arbiter/internal/health"
)

type upCmd struct {
	configFlags
	Demo bool `default:"true" negatable:"" help:"Run the demo MCP server and register it."`
}

// Help lists the keys of the configuration.
func (configFlags) Help() string { return settingsHelp() }

// readyWithin is how long a start may take before it counts as failed.
const readyWithin = 60 * time.Second

// Run runs everything in one process, with Envoy as a child, until it is told
// to stop.
func (c *upCmd) Run(p *program) error {
	r, err := p.newRoles(c.configFlags, "")
	if err != nil {
		return err
	}
	defer r.close()
	path, version, err := envoy.Find()
	if err != nil {
		return err
	}
	data, err := r.envoy(path)
	if err != nil {
		return err
	}
	decider, err := r.extauthz()
	if err != nil {
		return err
	}
	holder, err := r.control(decider, version)
	if err != nil {
		return err
	}
	var tools *demo.Server
	if c.Demo {
		if tools, err = demo.New(demo.Config{Log: r.slog}); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(p.ctx)
	group.Go(func() error { return holder.Run(ctx) })
	group.Go(func() error { return decider.Run(ctx) })
	group.Go(func() error { return data.Run(ctx) })
	if tools != nil {
		group.Go(func() error { return tools.Run(ctx) })
	}
	group.Go(func() error {
		if err := r.waitReady(ctx, holder, data); err != nil {
			return err
		}
		return r.welcome(ctx, tools)
	})
	err = group.Wait()
	if p.ctx.Err() != nil { // told to stop
		return nil
	}
	return err
}

// waitReady waits until Envoy serves and nothing is missing.
func (r *roles) waitReady(ctx context.Context, holder *control.Control, data *envoy.Runner) error {
	wait, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := data.Ready(wait); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("waiting for Envoy: %w", err)
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		problems := holder.Problems(wait)
		if len(problems) == 0 {
			return nil
		}
		if err := holder.Refused(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wait.Done():
			return errors.New("not ready after " + readyWithin.String() + ": " + problems[0])
		case <-ticker.C:
		}
	}
}

type controlCmd struct{ configFlags }

// Run runs control alone.
func (c *controlCmd) Run(p *program) error {
	r, err := p.newRoles(c.configFlags, "")
	if err != nil {
		return err
	}
	defer r.close()
	holder, err := r.control(nil, "")
	if err != nil {
		return err
	}
	return holder.Run(p.ctx)
}

type extauthzCmd struct {
	configFlags
	instanceFlag
}

// Run runs Check and Guard alone, with health and metrics on a socket.
func (c *extauthzCmd) Run(p *program) error {
	r, err := p.newRoles(c.configFlags, c.Instance)
	if err != nil {
		return err
	}
	defer r.close()
	decider, err := r.extauthz()
	if err != nil {
		return err
	}
	admin, err := p.listenUnix(r.instance.of(extauthzAdmin))
	if err != nil {
		return err
	}
	problems := func(context.Context) []string {
		if err := decider.Ready(); err != nil {
			return []string{err.Error()}
		}
		return nil
	}
	routes := health.Routes(problems, r.registry)
	if r.settings.Profile {
		routes = health.WithProfiles(routes)
	}
	group, ctx := errgroup.WithContext(p.ctx)
	group.Go(func() error { return decider.Run(ctx) })
	group.Go(func() error { return health.Serve(ctx, admin, routes, nil) })
	return group.Wait()
}

type envoyCmd struct {
	configFlags
	instanceFlag
}

// Run runs Envoy alone, beside an extauthz of the same data directory.
func (c *envoyCmd) Run(p *program) error {
	r, err := p.newRoles(c.configFlags, c.Instance)
	if err != nil {
		return err
	}
	defer r.close()
	path, _, err := envoy.Find()
	if err != nil {
		return err
	}
	data, err := r.envoy(path)
	if err != nil {
		return err
	}
	return data.Run(p.ctx)
}
