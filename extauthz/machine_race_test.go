//go:build race

package extauthz

// machineRounds is how often a run takes rapid's number of steps: under the
// race detector SQLite is ten times slower.
const machineRounds = 1
