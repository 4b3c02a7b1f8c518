//go:build !race

package revocation

const raceEnabled = false
