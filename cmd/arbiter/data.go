package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Files of the data directory, beside those of the store and servercert. Those
// of extauthz and of Envoy have an instance's form: instance.of.
const (
	keyFile          = "key"             // seals what the store keeps secret
	databaseFile     = "arbiter.db"      //
	lockFile         = "lock"            // held by the process that runs control
	demoHeaderFile   = "demo.header"     // Authorization of the demo token, for curl -H @FILE
	decisionsFile    = "decisions.jsonl" // decision records
	seenFile         = "seen.json"       // how far an extauthz has followed the revocation log
	policyDirectory  = "policy"          // whose policy decides under arbiter up
	standardFile     = "policy.standard" // revision of the standard policy that was written there
	xdsSocket        = "run/xds.sock"
	extauthzSocket   = "run/extauthz.sock"
	extauthzAdmin    = "run/extauthz-admin.sock" // health and metrics of an extauthz process
	envoyAdminSocket = "run/envoy-admin.sock"
	envoyBootstrap   = "run/envoy.json"
)

// prepareData makes the data directory, for this user only.
func (p *program) prepareData(i instance) error {
	for _, dir := range []string{p.data, p.file("run"), p.file("tls")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
			return fmt.Errorf("data directory: %w", err)
		}
	}
	for _, socket := range []string{xdsSocket, extauthzSocket, extauthzAdmin, envoyAdminSocket} {
		if path := p.file(i.of(socket)); len(path) > maxSocketPath {
			return fmt.Errorf("the path %s is longer than a unix socket's may be (%d bytes): use a shorter data directory", path, maxSocketPath)
		}
	}
	return nil
}

// lock makes sure that one process at a time runs a role in this data
// directory. The lock goes with the process, also with kill -9.
func (p *program) lock(name string) (release func(), err error) {
	file, err := os.OpenFile(p.file(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("arbiter already runs in %s: stop that one first, or use another data directory (ARBITER_DATA)", p.data)
		}
		return nil, fmt.Errorf("locking %s: %w", p.data, err)
	}
	return func() { _ = file.Close() }, nil
}

// storeKey reads the key that seals stored secrets, or makes it at the first
// start. A database without its key is never given a new one.
func (p *program) storeKey() (key [32]byte, err error) {
	path := p.file(keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(p.file(databaseFile)); err == nil {
			return key, fmt.Errorf("%s is missing, and without it the secrets in %s cannot be read: put it back", path, p.file(databaseFile))
		}
		return makeKey(path)
	}
	if err != nil {
		return key, fmt.Errorf("reading the store's key: %w", err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("%s does not hold 32 bytes in hexadecimal", path)
	}
	return [32]byte(raw), nil
}

func makeKey(path string) (key [32]byte, err error) {
	rand.Read(key[:])
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return key, fmt.Errorf("making the store's key: %w", err)
	}
	_, err = file.WriteString(hex.EncodeToString(key[:]) + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return key, fmt.Errorf("making the store's key: %w", err)
	}
	return key, nil
}

// listenUnix listens on a socket of the data directory that only this user can
// reach. The caller holds the lock, so what lies there is a left-over.
func (p *program) listenUnix(name string) (net.Listener, error) {
	path := p.file(name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, errors.Join(err, listener.Close()))
	}
	return listener, nil
}
