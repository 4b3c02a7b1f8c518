// Package envoy starts the Envoy that stands in front of everything.
//
// It finds the binary of the pinned version, writes the bootstrap (only what
// Envoy needs to find the xDS server; everything else is pushed), and runs it
// as a child that cannot outlive its parent. It trusts the binary it is given:
// who can replace that file sees all traffic.
package envoy
