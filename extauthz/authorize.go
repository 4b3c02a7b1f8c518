package extauthz

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/policies"
)

// What policies call the transports.
const (
	transportMCP = "mcp"
	transportRPC = "rpc"
)

// authorize is step 6: the question for each message, all or nothing.
func (s *Server) authorize(ctx context.Context, d *decision) error {
	if d.req.transport == jsonrpc.MCP && d.opensStreams() {
		if s.streams.count(tokenKey(d.who.ID)) >= d.snap.gateway.streams {
			return (&denial{reason: reasonStreams, retryAfter: streamsAgain}).addressed(d.call)
		}
	}
	if d.req.header.seenSize > seenMost {
		return deny(reasonHeaders).addressed(d.call)
	}
	d.input, d.calls = s.inputOf(d), callsOf(d.call, d.version())
	if len(d.call.messages) == 0 {
		if d.req.method == "DELETE" {
			return nil // upkeep: ending a session takes no right
		}
		d.input.Action = policies.ActionOpenStream
		if err := s.ask(ctx, d, d.input); err != nil {
			return err
		}
	}
	for i := range d.calls {
		in := d.input
		in.Call = &d.calls[i]
		if err := s.ask(ctx, d, in); err != nil {
			return err
		}
	}
	return nil
}

// ask puts one question to the policy of this request's snapshot.
func (s *Server) ask(ctx context.Context, d *decision, in policies.Input) error {
	began := s.now()
	answer, err := d.snap.policy.Decide(ctx, &in)
	took := s.now().Sub(began)
	s.metrics.policy.Observe(took.Seconds())
	d.hear(&in, answer, err, took)
	switch {
	case errors.Is(err, policies.ErrArguments):
		return (&denial{reason: reasonBody, detail: "arguments_too_large", code: codeInvalidParams}).
			with("the arguments hold too many values, or a number that is too long, for the policy of this gateway").addressed(d.call)
	case err != nil:
		return err
	case !answer.Allow:
		return policyDenial(&answer).hiding(&answer, in.Call).addressed(d.call)
	case d.srv.holds(toolOf(in.Call)):
		return deny(reasonTool).addressed(d.call)
	}
	for _, limit := range answer.Limits {
		d.limited = want(d.limited, limit, d.who.Principal.Digest(), toolOf(in.Call))
	}
	return d.setHeaders(answer.Headers)
}

func toolOf(c *policies.Call) string {
	if c == nil {
		return ""
	}
	return c.Tool
}

// takeLimits counts an allowed request against what the policy limits it by, all
// of its messages together.
func (s *Server) takeLimits(d *decision) error {
	if len(d.limited) == 0 {
		return nil
	}
	for i := range d.limited {
		if burst := d.limited[i].burst; d.limited[i].tokens > burst {
			return deny(reasonLimit).
				with("this is more at once than the policy ever allows, " + strconv.Itoa(burst) + ": split the batch").
				addressed(d.call)
		}
	}
	wait := s.limits.take(d.srv.id, d.who.Principal.Digest(), d.limited, s.revoked.Instant().Boot)
	if wait == 0 {
		return nil
	}
	seconds := int(wait / time.Second)
	return (&denial{reason: reasonLimit, retryAfter: seconds}).
		with("this is called too often: the policy limits how often, and each replica of the gateway counts; try again in " + strconv.Itoa(seconds) + " s").
		addressed(d.call)
}

// inputOf is what all messages of a request have in common.
func (s *Server) inputOf(d *decision) policies.Input {
	transport := transportMCP
	if d.req.transport == jsonrpc.RPC {
		transport = transportRPC
	}
	return policies.Input{
		Principal: policies.Principal{Principal: d.who.Principal, Scopes: d.who.Scopes, Narrowed: d.who.Narrowed},
		Server:    &d.srv.seen, Transport: transport, Action: policies.ActionCall, Time: s.revoked.Now(),
		Request: d.req.seen(),
	}
}

// version is the revision of MCP that holds for a request: what it says, or what
// its session was asked for.
func (d *decision) version() string {
	if d.call.version == "" && d.session != nil {
		return d.session.Version
	}
	return d.call.version
}

// callsOf are the messages that the policy is asked about.
func callsOf(c call, version string) []policies.Call {
	var out []policies.Call
	for i, m := range c.messages {
		if upkeep(m) {
			continue
		}
		asked := callOf(m)
		asked.ProtocolVersion = version
		if c.batch {
			asked.Batch, asked.BatchIndex = true, i
		}
		out = append(out, asked)
	}
	return out
}

// callOf is a message as a policy sees it.
func callOf(m jsonrpc.Message) policies.Call {
	c := policies.Call{Method: m.Method, Arguments: m.Arguments, Subscriptions: m.Subscriptions, Notification: m.Kind == jsonrpc.Notification}
	switch jsonrpc.SubjectOf(m.Method) {
	case jsonrpc.Tool:
		c.Tool = m.Selector
	case jsonrpc.Prompt:
		c.Prompt = m.Selector
	case jsonrpc.Resource:
		c.Resource = m.Selector
	case jsonrpc.Task:
		c.Task = m.Selector
	case jsonrpc.Level:
		c.Level = m.Selector
	case jsonrpc.Completion:
		c.Ref = &policies.Ref{Type: m.Ref, Name: m.Selector}
	default:
		if !known(m.Method) {
			c.Arguments, c.Params = nil, m.Params
		}
	}
	return c
}

// opensStreams reports whether the answer may be a live stream that counts:
// upkeep goes on at the cap, or nobody could end what reached it.
func (d *decision) opensStreams() bool {
	if len(d.call.messages) == 0 {
		return d.req.method != "DELETE"
	}
	return !allUpkeep(d.call.messages)
}

func allUpkeep(messages []jsonrpc.Message) bool {
	return !slices.ContainsFunc(messages, func(m jsonrpc.Message) bool { return !upkeep(m) })
}
