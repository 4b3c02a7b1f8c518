package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Names of the arms, in the order of a round. Ratios are to noop and alone.
const (
	armAlone   = "alone"
	armNoop    = "noop"
	armRPC     = "rpc"
	armJSON    = "mcp-json"
	armSSE     = "mcp-sse"
	armStreams = "rpc-streams"
	armOther   = "rpc-other"
)

var allArms = []string{armAlone, armNoop, armRPC, armJSON, armSSE, armStreams}

// callSize is the length of the call that every arm sends.
const callSize = 1024

// idleStreams are open while armStreams is measured: four credentials, each
// below the default limit of 256.
const idleStreams, streamHolders = 1000, 4

// arm is one thing that is measured.
type arm struct {
	name    string
	what    string // for the report
	url     string
	headers []string
	parts   map[string]int // process ids: envoy, authz, control, upstream
	wants   string         // what a right answer holds
	trusts  string         // data directory of the arbiter whose certificate is shown
	gateway *arbiter       // nil without one
	holders []holder       // idle streams that are open meanwhile
}

// bench is a fleet with its arms.
type bench struct {
	*fleet
	arms []*arm
}

const rightAnswer = `"text":"the answer of a tool"`

// prepare starts everything that the wanted arms need.
func (b *bench) prepare(ctx context.Context, o options) error {
	var err error
	if b.envoy, err = findEnvoy(ctx); err != nil {
		return err
	}
	if err := b.startUpstream(ctx); err != nil {
		return err
	}
	program, err := b.build(ctx, "./cmd/arbiter")
	if err != nil {
		return err
	}
	var env []string
	if o.profile {
		env = append(env, "ARBITER_PROFILE=true")
	}
	gateway, err := b.startArbiter(ctx, "arbiter", program, env...)
	if err != nil {
		return err
	}
	if err := b.addBaselines(ctx, gateway); err != nil {
		return err
	}
	if err := b.addGateway(ctx, gateway); err != nil {
		return err
	}
	if o.policies {
		if err := b.addPolicies(ctx, gateway); err != nil {
			return err
		}
	}
	if o.binary != "" {
		if err := b.addOther(ctx, o.binary); err != nil {
			return err
		}
	}
	return b.choose(o.arms)
}

// choose keeps the arms that are asked for.
func (b *bench) choose(names []string) error {
	var kept []*arm
	for _, a := range b.arms {
		for _, name := range names {
			if a.name == name {
				kept = append(kept, a)
			}
		}
	}
	if len(kept) < len(names) {
		return fmt.Errorf("-arms knows %s; with -policies %s; with -binary %s too",
			strings.Join(allArms, " "), strings.Join(policyArms, " "), armOther)
	}
	b.arms = kept
	return nil
}

func (b *bench) addBaselines(ctx context.Context, gateway *arbiter) error {
	socket, noop, err := b.startNoop(ctx)
	if err != nil {
		return err
	}
	for _, a := range []authorizer{
		{armAlone, "Envoy alone", "", 0},
		{armNoop, "Envoy + stock grpc-go no-op ext_authz", socket, noop},
	} {
		if err := b.addBaseline(ctx, gateway, a); err != nil {
			return err
		}
	}
	return nil
}

// authorizer is whom the Envoy of an arm asks instead of Arbiter.
type authorizer struct {
	name, what string // of the arm
	socket     string // "": nobody is asked
	pid        int
}

// addBaseline makes the arm of an Envoy without Arbiter.
func (b *bench) addBaseline(ctx context.Context, gateway *arbiter, a authorizer) error {
	listen, err := freePort()
	if err != nil {
		return err
	}
	pid, err := b.startBaseline(ctx, a.name, gateway, baseline{listen, gateway.dir, a.socket, b.upstream})
	if err != nil {
		return err
	}
	parts := map[string]int{"envoy": pid, "upstream": b.upstreamPID}
	if a.pid > 0 {
		parts["authz"] = a.pid
	}
	b.arms = append(b.arms, &arm{
		name: a.name, what: a.what, parts: parts, trusts: gateway.dir, wants: rightAnswer,
		url:     "https://" + listen.String() + "/servers/" + nowhere + "/rpc",
		headers: callHeaders(nobody),
	})
	return nil
}

func callHeaders(token string) []string {
	return []string{"content-type: application/json", "accept: " + bothKinds, "authorization: Bearer " + token}
}

// addGateway makes the arms of one Arbiter.
func (b *bench) addGateway(ctx context.Context, g *arbiter) error {
	plain, token, err := b.addServer(ctx, g, "bench-json", jsonPath)
	if err != nil {
		return err
	}
	stream, streamToken, err := b.addServer(ctx, g, "bench-sse", ssePath)
	if err != nil {
		return err
	}
	rpc := b.gatewayArm(g, armRPC, "Envoy + Arbiter, `/rpc`", plain+"/rpc", callHeaders(token))
	asJSON := b.gatewayArm(g, armJSON, "Envoy + Arbiter, `/mcp` POST, answered as JSON", plain+"/mcp", callHeaders(token))
	asStream := b.gatewayArm(g, armSSE, "Envoy + Arbiter, `/mcp` POST, answered as SSE", stream+"/mcp", callHeaders(streamToken))
	for _, a := range []*arm{asJSON, asStream} {
		if a.headers, err = inSession(ctx, a); err != nil {
			return err
		}
	}
	busy := b.gatewayArm(g, armStreams, fmt.Sprintf("the same `/rpc` while %d idle SSE streams are open", idleStreams), plain+"/rpc", callHeaders(token))
	if busy.holders, err = b.holders(ctx, g, asJSON); err != nil {
		return err
	}
	b.arms = append(b.arms, rpc, asJSON, asStream, busy)
	return nil
}

// addOther makes the arm of another build, to be compared with this one.
func (b *bench) addOther(ctx context.Context, program string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	g, err := b.startArbiter(ctx, "other", program)
	if err != nil {
		return err
	}
	server, token, err := b.addServer(ctx, g, "bench-json", jsonPath)
	if err != nil {
		return err
	}
	b.arms = append(b.arms, b.gatewayArm(g, armOther, "the other build, `/rpc`", server+"/rpc", callHeaders(token)))
	return nil
}

// addServer puts the upstream behind g and returns the server's path and a token.
func (b *bench) addServer(ctx context.Context, g *arbiter, name, path string) (server, token string, err error) {
	id, err := g.addServer(ctx, name, b.upstream, path)
	if err != nil {
		return "", "", err
	}
	token, err = g.addToken(ctx, id)
	return "/servers/" + id, token, err
}

func (b *bench) gatewayArm(g *arbiter, name, what, path string, headers []string) *arm {
	parts := map[string]int{"upstream": b.upstreamPID}
	for part, pid := range g.parts {
		parts[part] = pid
	}
	return &arm{
		name: name, what: what, url: origin(g.listen) + path, headers: headers,
		parts: parts, wants: rightAnswer, trusts: g.dir, gateway: g,
	}
}

func origin(listen netip.AddrPort) string { return "https://" + listen.String() }

// inSession opens a legacy session and returns the headers of a call in it.
func inSession(ctx context.Context, a *arm) ([]string, error) {
	client, err := secureClient(a.trusts)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	session, err := initialize(ctx, client, a.url, a.headers)
	return append(a.headers[:len(a.headers):len(a.headers)], "mcp-session-id: "+session), err
}

// holders make the credentials and sessions of the idle streams.
func (b *bench) holders(ctx context.Context, g *arbiter, like *arm) ([]holder, error) {
	id := strings.Split(like.url, "/")[4] // https://ip:port/servers/ID/mcp
	var out []holder
	for range streamHolders {
		token, err := g.addToken(ctx, id)
		if err != nil {
			return nil, err
		}
		of := *like
		of.headers = callHeaders(token)
		headers, err := inSession(ctx, &of)
		if err != nil {
			return nil, err
		}
		out = append(out, holder{like.url, headers[1:], idleStreams / streamHolders}) // a GET has no media type
	}
	return out, nil
}

// check sends one call and reads the answer: h2load counts statuses only, and a
// denied tool is 200.
func (a *arm) check(ctx context.Context, body string) error {
	client, err := secureClient(a.trusts)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	got, err := ask(ctx, client, call{http.MethodPost, a.url, a.headers, body})
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	if got.status != http.StatusOK || got.major != 2 || !strings.Contains(string(got.text), a.wants) {
		return fmt.Errorf("%s: one call was answered %d over HTTP/%d: %s", a.name, got.status, got.major, got.text)
	}
	return nil
}

// writeBody leaves the call in a file for h2load.
func (b *bench) writeBody() (string, error) {
	file := filepath.Join(b.dir, "call.json")
	return file, os.WriteFile(file, []byte(toolCall(callSize)), 0o600)
}
