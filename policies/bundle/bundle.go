// Package bundle reads a policy's source from where operators keep it: a
// directory, or an OPA bundle (a gzip-compressed tar archive).
//
// A directory is trusted as the machine is. An archive is not, until its
// signature is verified: what it costs to read one is bounded, no name in it is
// used as a path of this machine, and Verifier.Read gives nothing of an archive
// that does not carry, for every file in it, the signature of the operator's
// key. Whether a signed bundle is older than the one that was accepted last
// only its caller can know: see Verified.
//
// What is read is source and nothing more. Whether it is a policy is for
// policies.Compile to say, and whether it does what it says for policies.Test.
package bundle

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/arbiter-gateway/arbiter/policies"
)

// ErrEmpty says that there is no Rego where a policy was looked for.
var ErrEmpty = errors.New(`there is no Rego: a policy is a file like policy.rego that begins with "package policy"`)

// collector keeps the files of a policy, and nothing above its limits.
type collector struct {
	files map[string][]byte
	size  int
}

func newCollector() *collector { return &collector{files: map[string][]byte{}} }

// room is how many bytes the next file may have.
func (c *collector) room() int64 { return int64(policies.BundleMost - c.size) }

func (c *collector) add(name string, content []byte) error {
	if _, twice := c.files[name]; twice {
		return fmt.Errorf("%s is there twice", name)
	}
	if len(c.files) == policies.FilesMost {
		return fmt.Errorf("there are more than %d files", policies.FilesMost)
	}
	if c.size += len(name) + len(content); c.size > policies.BundleMost {
		return errTooLarge
	}
	c.files[name] = content
	return nil
}

var errTooLarge = fmt.Errorf("there are more than %d bytes", policies.BundleMost)

func (c *collector) bundle() (policies.Bundle, error) {
	for name := range c.files {
		if path.Ext(name) == ".rego" {
			return policies.Bundle{Files: c.files}, nil
		}
	}
	return policies.Bundle{}, ErrEmpty
}

// isSource reports whether a file belongs to a policy. As in every OPA bundle,
// JSON and YAML of another name are not data.
func isSource(name string) bool {
	switch path.Base(name) {
	case "data.json", "data.yaml", "data.yml":
		return true
	}
	return path.Ext(name) == ".rego"
}

// plain refuses a file of a policy whose name could be read in two ways, by a
// person or by a machine.
func plain(name string) error {
	odd := strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/._-", r)
	})
	switch {
	case odd >= 0:
		return fmt.Errorf("the file name %+q has something else in it than A to Z, a to z, 0 to 9, '.', '_' and '-'", name)
	case len(name) > nameMost:
		return fmt.Errorf("the file name %s... has more than %d bytes", name[:40], nameMost)
	}
	return nil
}

// nameMost is how long a file's path may be, in bytes.
const nameMost = 255
