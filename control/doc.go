// Package control holds what the gateway is set to and carries it out: the
// store, the JSON API on the admin socket, the xDS server for Envoy and every
// extauthz, and the revocation log.
//
//	admin   CLI -> api -> store (one transaction = one revision) -> feed:
//	        read what changed -> xds -> Envoy and every extauthz -> confirmed
//
// The database is the only truth: the feed reads revisions from it and pushes
// what they changed; a notice inside the process only wakes it. Control trusts
// whoever can write the database and whoever reaches its admin socket as the
// same user. It does not trust extauthz for more than what it confirms.
package control
