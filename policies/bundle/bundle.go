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

// checkPath names the file that policies.CheckPath refuses.
func checkPath(name string) error {
	if err := policies.CheckPath(name); err != nil {
		return fmt.Errorf("the file name %+.60q: %w", name, err)
	}
	return nil
}
