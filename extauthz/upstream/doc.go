// Package upstream says where the servers behind the gateway are: it parses
// their URLs, resolves their names, and refuses addresses that must not be
// reached.
//
//	control    ParseURL when a server is written
//	extauthz   last step of a request: URL -> Resolver.Pick -> the address that
//	           Envoy connects to; Envoy itself never sees a name
//
// The person who adds a server is trusted to name it, but not to reach the
// gateway's own network through it, and neither is whoever answers for the
// name: each address is judged by Networks in the moment it is handed out, and
// the address that was judged is the one that is used, so an answer that changes
// (DNS rebinding) gains nothing.
package upstream
