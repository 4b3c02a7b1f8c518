// Package policies decides what an authenticated caller may do: the one Rego
// query, what it sees and what it says. Check asks it for calls and stream
// openings, Guard asks it for each item of a list, and everything that shows a
// caller what it could do asks it the same question.
//
// A Bundle is source: Rego files and data. Compile turns it into a Policy,
// strictly and with nothing that could look outside of its input: no network,
// no environment, no clock. Decide then answers one Input:
//
//	input -> data.policy (the bundle's) -> data.arbiter.decision (decision.rego) -> Decision
//
// That a credential reaches only its own server is decided before this package
// is asked; nothing here can widen it. A bundle is trusted to say who may do
// what on every server, and to spend at most Deadline on each question.
package policies
