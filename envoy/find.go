package envoy

import (
	"context"
	_ "embed" // version.txt
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// versionFile is the one place that pins Envoy's version, for Go and for fetch.sh.
//
//go:embed version.txt
var versionFile string

// Version is the version of Envoy that this release is tested with.
func Version() string { return strings.TrimSpace(versionFile) }

// ErrNotFound says that there is no Envoy to run.
var ErrNotFound = errors.New("no Envoy: run `make envoy`, or set ARBITER_ENVOY to the path of an Envoy " + Version())

// Find returns the path of the Envoy to run and the version that it says it is:
// $ARBITER_ENVOY, or the one that `make envoy` has put into the cache. The
// version may differ from Version only under ARBITER_ENVOY. The error wraps
// ErrNotFound when there is none that runs.
func Find() (path, version string, err error) {
	path, chosen := os.Getenv("ARBITER_ENVOY"), true
	if path == "" {
		chosen = false
		if path, err = cached(); err != nil {
			return "", "", fmt.Errorf("%w (%w)", ErrNotFound, err)
		}
	}
	if version, err = versionOf(path); err != nil {
		return "", "", fmt.Errorf("%w (%w)", ErrNotFound, err)
	}
	if !chosen && version != Version() {
		return "", "", fmt.Errorf("%w (%s is version %s)", ErrNotFound, path, version)
	}
	return path, version, nil
}

// cached is where fetch.sh puts the binary.
func cached() (string, error) {
	dir := os.Getenv("XDG_CACHE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(dir, "arbiter", "envoy-"+Version(), "envoy"), nil
}

func versionOf(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", err
	}
	return parseVersion(string(out))
}

// parseVersion reads "envoy  version: <commit>/<version>/Clean/RELEASE/BoringSSL".
func parseVersion(out string) (string, error) {
	found := regexp.MustCompile(`version: [0-9a-f]+/([0-9.]+[-0-9a-z.]*)/`).FindStringSubmatch(out)
	if found == nil {
		return "", errors.New("its --version is not Envoy's")
	}
	return found[1], nil
}

// SystemRoots finds the file with the certificates that this system trusts:
// $SSL_CERT_FILE, or where Linux distributions and macOS keep it.
func SystemRoots() (string, error) {
	candidates := []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
		"/etc/ssl/ca-bundle.pem",                            // openSUSE
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL
		"/etc/ssl/cert.pem",                                 // Alpine, macOS
	}
	if chosen := os.Getenv("SSL_CERT_FILE"); chosen != "" {
		candidates = []string{chosen}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			return filepath.Abs(path)
		}
	}
	return "", errors.New("no file with the system's certificate authorities: install ca-certificates or set SSL_CERT_FILE")
}
