// Package jsonrpc is the one strict reading of a JSON-RPC body: step 4 ("call")
// of a request's way through extauthz.Check, and the shape of the answers that
// the gateway itself gives in JSON-RPC.
//
// It trusts nothing. Bytes and Rules come in; messages, or one typed *Error,
// come out. There is no second, laxer reading anywhere: what Parse cannot read
// in exactly one way is refused before a policy is asked, because the upstream
// may be written in a language whose JSON reader would choose the other way
// (fold the case of keys, keep the first or the last duplicate, drop what it
// cannot decode).
//
// What is refused, in the order in which it is noticed:
//
//   - what is not I-JSON (RFC 7493) or lies deeper than MaxDepth: -32700
//   - what is not a message of JSON-RPC 2.0 that may stand here: -32600
//   - params that do not fit the method, or can be read in two ways: -32602
//   - a sound body over Rules.MaxBytes: -31413
//
// -32602 and -31413 echo the id of a single request, as JSON-RPC 2.0 section 5
// wants it; the others never do.
//
// Error texts name an offset or a place in the message, never a caller's key or
// value.
package jsonrpc
