// Package xds turns what control knows into what Envoy and every extauthz run.
//
// It is the last step of the admin flow: store -> State -> Translate (pure) ->
// Server -> Envoy and extauthz -> Applied. Envoy gets listener, routes, one
// cluster per upstream TLS profile and its certificate, and nothing about
// single servers: a server's address, host and path come from Check's dynamic
// metadata, per request. Every extauthz gets the servers, keys and gateway
// settings themselves, by store revision.
//
// The package trusts the process it runs in. It does not trust Check to be
// complete: a route opens only for an answer that carries everything (routes.go),
// and what is not named in the route table is 404 before Check is asked.
package xds
