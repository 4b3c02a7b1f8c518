package extauthz

import (
	"context"
	"slices"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/policies"
)

// authorize is step 6: the question for each message, all or nothing.
func (s *Server) authorize(ctx context.Context, d *decision) error {
	if d.req.transport == jsonrpc.MCP && d.opensStreams() {
		if s.streams.count(tokenKey(d.who.ID)) >= d.snap.gateway.streams {
			return deny(reasonStreams).addressed(d.call)
		}
	}
	in := s.question(d)
	if len(d.call.messages) == 0 {
		if d.req.method == "DELETE" {
			return nil // upkeep: ending a session takes no right
		}
		in.Action = policies.ActionOpenStream
		return s.ask(ctx, d, &in)
	}
	in.Action = policies.ActionCall
	for i, m := range d.call.messages {
		if upkeep(m) {
			continue
		}
		in.Call = asked(m)
		in.Call.ProtocolVersion, in.Call.Batch, in.Call.BatchIndex = d.call.version, d.call.batch, i
		if err := s.ask(ctx, d, &in); err != nil {
			return err
		}
	}
	return nil
}

// ask puts one question to the policy of this request's snapshot.
func (s *Server) ask(ctx context.Context, d *decision, in *policies.Input) error {
	answer, err := d.snap.policy.Decide(ctx, in)
	if err != nil {
		return err
	}
	if answer.Allow {
		return nil
	}
	first := answer.Denials[0]
	return (&denial{reason: reasonPolicy, detail: first.Code, text: first.Text}).addressed(d.call)
}

// question is what all messages of a request have in common.
func (s *Server) question(d *decision) policies.Input {
	transport := "mcp"
	if d.req.transport == jsonrpc.RPC {
		transport = "rpc"
	}
	return policies.Input{
		Principal: policies.Principal{Principal: d.who.Principal, Scopes: d.who.Scopes, Narrowed: d.who.Narrowed},
		Server:    &d.srv.seen, Transport: transport, Time: s.revoked.Now(),
		Request: policies.Request{Method: d.req.method, Path: d.req.path, Host: d.req.host, Source: d.req.peer},
	}
}

// asked is a message as a policy sees it.
func asked(m jsonrpc.Message) *policies.Call {
	c := &policies.Call{Method: m.Method, Arguments: m.Arguments, Subscriptions: m.Subscriptions, Notification: m.Kind == jsonrpc.Notification}
	switch m.Method {
	case "tools/call":
		c.Tool = m.Selector
	case "prompts/get":
		c.Prompt = m.Selector
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		c.Resource = m.Selector
	case "tasks/get", "tasks/update", "tasks/cancel", "tasks/result":
		c.Task = m.Selector
	case "logging/setLevel":
		c.Level = m.Selector
	case "completion/complete":
		c.Ref = &policies.Ref{Type: m.Ref, Name: m.Selector}
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

// upkeep messages keep a session going: credential and session, no policy
// (contract section 4). server/discover is never denied to a caller who may
// use the server.
func upkeep(m jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Response || slices.Contains([]string{
		"ping", "server/discover", "notifications/initialized", "notifications/cancelled",
		"notifications/progress", "notifications/roots/list_changed",
	}, m.Method)
}
