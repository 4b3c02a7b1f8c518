//go:build !race

package extauthz

const machineRounds = 2
