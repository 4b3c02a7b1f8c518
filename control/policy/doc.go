// Package policy keeps which policy decides: it reads what a source has to
// offer, accepts what compiles and passes its own tests, and stores it.
//
//	source (directory | signed bundle over https) or API
//	  -> Keeper: compile -> the bundle's own tests -> store (one revision)
//	  -> feed -> every extauthz
//
// What is refused changes nothing: the last good policy goes on deciding, over
// restarts too, and the fault is told with file and line. A policy is stored by
// every control that sees a source, and pushed by every control of the store.
//
// Who can write the directory, holds the signing key, or reaches the API
// decides who may do what on every server. A bundle's server is not trusted: it
// can at most withhold a newer bundle.
package policy
