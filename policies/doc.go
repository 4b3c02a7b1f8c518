// Package policies decides what an authenticated caller may do: the one Rego
// query, what it sees and what it says. Check asks it for calls and stream
// openings, Guard asks it for each item of a list, and everything that shows a
// caller what it could do asks it the same question.
//
// A Bundle is source: Rego files and data. Compile turns it into a Policy,
// strictly and with nothing that could look outside of its input: no network,
// no environment, no clock. Decide then answers one Input:
//
//	Input -> what the policy can read of it (build.go) -> data.policy (the bundle's) -> its members (question.go) -> Decision (result.go)
//	      -> the same as a key (key.go) -> the decision of last time (cache.go)
//
// That a credential reaches only its own server is decided before this package
// is asked; nothing here can widen it. A bundle is trusted to say who may do
// what on every server; what it can cost is bounded (deadline.go, guards.go,
// source.go). An Input is not trusted: the values of its arguments are a
// caller's, and so are all names.
package policies
