// Package lists takes out of an upstream's answers what its caller may not use:
// of every result with tools, prompts, resources or resourceTemplates in it,
// whatever was asked for (contract section 4, "Lists").
//
// It is pure: bytes come in, bytes go out, and Show says of each item whether it
// stays. It knows no policy, no gRPC and no Envoy. Guard (package extauthz)
// feeds it answers in JSON (Filter.Message) and event streams (Stream).
//
// It trusts Show and nothing else. What could be read in more than one way is
// refused, as a *Refusal, because the caller's reader may choose the other way:
// duplicate keys, keys that differ only by case or invisible characters, lists
// that are no arrays, what is not I-JSON (RFC 7493). An item that cannot be
// named cannot be asked about, and goes.
//
// What stays keeps its bytes: order, spelling of numbers and strings, cursors,
// members that nobody knows.
package lists
