package extauthz

import (
	"strconv"
	"strings"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/policies"
)

// denialTextMost is when no further reason is added to a denial's text, in
// bytes.
const denialTextMost = 1500

// policyDenial is what a policy's denial becomes: its first code, and all that
// it says.
func policyDenial(answer *policies.Decision) *denial {
	out := &denial{reason: reasonPolicy, detail: answer.Denials[0].Code, scopes: answer.Scopes}
	var texts []string
	size := 0
	for i, one := range answer.Denials {
		if size > denialTextMost {
			texts = append(texts, strconv.Itoa(len(answer.Denials)-i)+" more reasons")
			break
		}
		if one.Text != "" {
			texts = append(texts, one.Text)
			size += len(one.Text)
		}
	}
	out.text = strings.Join(texts, "; ")
	return out
}

// hiding makes the denial of a call look like an unknown tool's, when the policy
// says so. What opens a session or a stream cannot be hidden from who knows the
// server.
func (d *denial) hiding(answer *policies.Decision, c *policies.Call) *denial {
	if c == nil {
		return d
	}
	d.index = c.BatchIndex
	d.hidden = answer.Hide && c.Method != "initialize"
	return d
}

// late is the denial of what was allowed a moment ago. What is hidden now is not
// spoken of, and a session that Check would keep alive is kept here too.
func (d *denial) late(answer *policies.Decision, keeps bool) *denial {
	if d.kept = keeps; answer.Hide {
		d.text = ""
	}
	return d
}

// help names the scopes that would have helped and of which the text does not
// speak.
func (d *denial) help(text string) string {
	var more []string
	for _, scope := range d.scopes {
		if !strings.Contains(text, scope) {
			more = append(more, scope)
		}
	}
	if len(more) == 0 {
		return ""
	}
	return "; scopes that would help: " + strings.Join(more, ", ")
}

// hiddenNameMost is how much of a name is echoed, in bytes.
const hiddenNameMost = 1 << 10

// unknown is how a server answers that has never heard of what a message is
// about (MCP 2025-11-25, server/tools and server/prompts, "Error Handling";
// -32602 for resources as of 2026-07-28).
func unknown(m jsonrpc.Message) outward {
	name := m.Selector[:min(len(m.Selector), hiddenNameMost)]
	out := outward{code: codeInvalidParams}
	switch jsonrpc.SubjectOf(m.Method) {
	case jsonrpc.Tool:
		out.text = "Unknown tool: " + name
	case jsonrpc.Prompt:
		out.text = "Unknown prompt: " + name
	case jsonrpc.Resource:
		out.text = "Resource not found: " + name
	case jsonrpc.Completion:
		if out.text = "Unknown prompt: " + name; m.Ref == "ref/resource" {
			out.text = "Resource not found: " + name
		}
	case jsonrpc.Task:
		out.text = "Task not found: " + name
	default:
		out = outward{code: codeMethodNotFound, text: "Method not found"}
	}
	return out
}

// notPassed is what the other requests of a batch are told of which one message
// is answered as unknown.
var notPassed = outward{code: codeForbidden, text: "nothing of this batch was passed on: one of its messages is refused"}
