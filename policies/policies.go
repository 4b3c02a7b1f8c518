// Package policies decides what an authenticated caller may do. It is the one
// place that does: Check asks it for calls and stream openings, and everything
// that shows a caller what it could do asks it the same question.
//
// That a credential reaches only its own server is decided before this
// package is asked; nothing here can widen it.
package policies

import (
	"slices"
	"strings"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// Action is what is asked for.
type Action string

// The actions.
const (
	ActionCall       Action = "call"        // one JSON-RPC request or notification
	ActionOpenStream Action = "open_stream" // GET on /mcp
)

// Call is one parsed JSON-RPC message.
type Call struct {
	Method string
	Tool   string // of tools/call
}

// Input is everything a decision can depend on.
type Input struct {
	Principal identity.Principal
	Scopes    []string // what the credential is narrowed to
	Narrowed  bool     // false: made without scopes
	Action    Action
	Call      Call // of ActionCall
}

// Decision is the answer. The zero Decision denies.
type Decision struct {
	Allow  bool
	Reason string // stable code
	Text   string // for the caller: what is missing and what would help
	Scopes []string
}

// The scopes of access tokens (contract section 2).
const (
	ScopeConnect     = "mcp:connect"
	ScopeTools       = "tools:call"
	ScopeToolPrefix  = "tools:call:"
	ScopeBootstrap   = "identity:bootstrap"
	ReasonAllowed    = "allowed"
	ReasonScope      = "scope_missing"
	methodToolsCall  = "tools/call"
	wholeScopeAdvice = "ask the server's owner for a token with that scope"
)

// Decide answers one question: scopes only narrow, and a credential that was
// made without them is not narrowed.
func Decide(in Input) Decision {
	if !in.Narrowed {
		return Decision{Allow: true, Reason: ReasonAllowed}
	}
	needed := scopesFor(in)
	for _, scope := range needed {
		if slices.Contains(in.Scopes, scope) {
			return Decision{Allow: true, Reason: ReasonAllowed}
		}
	}
	what := "this needs the scope " + needed[0]
	if len(needed) > 1 {
		what = "calling the tool " + quote(in.Call.Tool) + " needs the scope " + needed[0] + " or " + ScopeToolPrefix + printable(in.Call.Tool)
	}
	return Decision{Reason: ReasonScope, Text: what + ", which this credential does not have; " + wholeScopeAdvice, Scopes: needed}
}

// scopesFor lists the scopes of which one suffices. A method that an upstream
// might take for tools/call, in another case or with blanks, is one: of no tool
// that could be named.
func scopesFor(in Input) []string {
	switch {
	case in.Action != ActionCall:
		return []string{ScopeConnect}
	case in.Call.Method == methodToolsCall:
		return []string{ScopeTools, ScopeToolPrefix + in.Call.Tool}
	case strings.EqualFold(strings.TrimSpace(in.Call.Method), methodToolsCall):
		return []string{ScopeTools}
	}
	return []string{ScopeConnect}
}

func quote(s string) string { return `"` + printable(s) + `"` }

// printable shows a caller's own text back to it, shortened.
func printable(s string) string {
	const most = 64
	out := make([]rune, 0, most)
	for _, r := range s {
		if len(out) == most {
			out = append(out, '…')
			break
		}
		if r < ' ' || r == '"' || r == 0x7f {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}
