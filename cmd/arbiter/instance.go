package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// instanceFlag tells several extauthz and Envoys of one data directory apart.
type instanceFlag struct {
	Instance instance `env:"ARBITER_INSTANCE" placeholder:"N" help:"Which pair of extauthz and Envoy this is part of, 1 to 999 (${env}); the first pair has none."`
}

// instance is the number of a pair, "" for the first one. It stands in the names
// of what each pair has for itself.
type instance string

const instancesMost = 999

// check wants the one spelling of a number: 01 and 1 would be two pairs.
func (i instance) check() error {
	if i == "" {
		return nil
	}
	if n, err := strconv.Atoi(string(i)); err != nil || n < 1 || n > instancesMost || strconv.Itoa(n) != string(i) {
		return fmt.Errorf("--instance (ARBITER_INSTANCE): %q is not a number from 1 to %d", string(i), instancesMost)
	}
	return nil
}

// of is this instance's form of a file name: run/extauthz-2.sock.
func (i instance) of(name string) string {
	if i == "" {
		return name
	}
	extension := filepath.Ext(name)
	return strings.TrimSuffix(name, extension) + "-" + string(i) + extension
}

// role is the name of a role in the names of replicas.
func (i instance) role(name string) string {
	if i == "" {
		return name
	}
	return name + "-" + string(i)
}
