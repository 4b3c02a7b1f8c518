//go:build race

package revocation

const raceEnabled = true
