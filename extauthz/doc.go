// Package extauthz decides each request that Envoy holds for it (Check, Envoy's
// ext_authz service) and looks after the answers that need it (Guard, Envoy's
// ext_proc service).
//
//	request   client -> Envoy -> Check: parse -> credential -> principal -> call
//	                             -> session -> policies -> record -> answer
//	answer    upstream -> Envoy -> Guard: seal the session, replace what may
//	                             not pass, hold the live stream -> client
//
// It stands beside one Envoy, on a unix socket that only that Envoy reaches,
// and believes what that Envoy says about a connection. It trusts control for
// what a credential stands for, for servers and keys, and for what is revoked.
// It holds no database and no key that signs a credential. Callers and
// upstreams are not trusted: what they send is read once, strictly.
//
// Everything is closed by default: a step that fails is an error, an error is
// 503, and one line of code, in decide, can allow.
package extauthz
