package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/bundle"
)

// policyCmd is what people do with policies: check, test and eval need no
// gateway, the others ask control.
type policyCmd struct {
	Check policyCheckCmd `cmd:"" help:"Say whether a policy could go live, and what is wrong with it."`
	Test  policyTestCmd  `cmd:"" help:"Run a policy's own tests, as they run before it goes live."`
	Eval  policyEvalCmd  `cmd:"" help:"Say what a policy decides on an input."`

	Show  policyShowCmd  `cmd:"" help:"Show the policy that decides."`
	Apply policyApplyCmd `cmd:"" help:"Make another policy decide; answers when every replica runs it."`
	Try   policyTryCmd   `cmd:"" help:"Ask a policy what was asked before, and list what it would have answered otherwise."`
}

// policySource is where a policy is read from.
type policySource struct {
	Path  string `arg:"" name:"dir" help:"Directory of the policy, or an OPA bundle (.tar.gz)."`
	Key   string `placeholder:"FILE" help:"Public key (PEM) that has to have signed the bundle."`
	Scope string `placeholder:"NAME" help:"Scope that the signature has to have; with --key."`
}

// read gives the policy, and the version of a signed bundle.
func (s *policySource) read() (policies.Bundle, int64, error) {
	info, err := os.Stat(s.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return policies.Bundle{}, 0, fmt.Errorf("there is no directory or bundle %s", s.Path)
	case err != nil:
		return policies.Bundle{}, 0, err
	case s.Scope != "" && s.Key == "":
		return policies.Bundle{}, 0, errors.New("--scope: goes with --key")
	case info.IsDir() && s.Key != "":
		return policies.Bundle{}, 0, errors.New("--key: a directory is not signed; give a bundle")
	case info.IsDir():
		b, err := bundle.ReadDir(s.Path)
		return b, 0, err
	case filepath.Ext(s.Path) == ".rego":
		return policies.Bundle{}, 0, fmt.Errorf("%s is a file: give the directory that it is in", s.Path)
	}
	return s.readArchive()
}

func (s *policySource) readArchive() (policies.Bundle, int64, error) {
	file, err := os.Open(s.Path)
	if err != nil {
		return policies.Bundle{}, 0, err
	}
	defer func() { _ = file.Close() }()
	if s.Key == "" {
		b, err := bundle.ReadTarGz(file)
		return b, 0, err
	}
	key, err := os.ReadFile(s.Key)
	if err != nil {
		return policies.Bundle{}, 0, err
	}
	verifier, err := bundle.NewVerifier(key, s.Scope)
	if err != nil {
		return policies.Bundle{}, 0, fmt.Errorf("--key: %w", err)
	}
	verified, err := verifier.Read(file)
	return verified.Bundle, verified.Version, err
}

// where puts the directory in front of a bundle's file, so that an editor finds it.
func (s *policySource) where(b policies.Bundle, file string, line int) string {
	if _, ours := b.Files[file]; ours {
		if info, err := os.Stat(s.Path); err == nil && info.IsDir() {
			file = filepath.Join(s.Path, filepath.FromSlash(file))
		}
	}
	if line == 0 {
		return file
	}
	return file + ":" + strconv.Itoa(line)
}

// faults prints what is wrong with a bundle, one line each, and ends the
// command. Another error is given back as it is.
func (s *policySource) faults(p *program, b policies.Bundle, err error) error {
	bad, ok := errors.AsType[*policies.BundleError](err)
	if !ok {
		return err
	}
	lines := make([]string, len(bad.Faults))
	for i, fault := range bad.Faults {
		lines[i] = s.where(b, fault.File, fault.Line) + ": " + fault.Message
	}
	if p.json {
		err = p.printJSON(map[string]any{"faults": bad.Faults})
	} else {
		err = p.printLines(lines)
	}
	if err != nil {
		return err
	}
	return errors.New(count(len(lines), "fault") + " in this policy; it would be refused")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

type policyCheckCmd struct {
	policySource `embed:""`
}

// checkedPolicy is what check prints as JSON of a policy without faults.
type checkedPolicy struct {
	Revision string   `json:"revision"`
	Version  int64    `json:"version,omitzero"` // of a signed bundle
	Files    []string `json:"files"`
	Tests    bool     `json:"tests"` // there are some
}

// Run compiles the policy, as control does. It does not run its tests.
func (c *policyCheckCmd) Run(p *program) error {
	b, version, err := c.read()
	if err != nil {
		return err
	}
	policy, err := policies.Compile(p.ctx, b)
	if err != nil {
		return c.faults(p, b, err)
	}
	out := checkedPolicy{Revision: policy.Revision(), Version: version, Files: slices.Sorted(maps.Keys(b.Files))}
	out.Tests = slices.ContainsFunc(out.Files, func(name string) bool { return strings.HasSuffix(name, "_test.rego") })
	if p.json {
		return p.printJSON(out)
	}
	text := "no fault in " + count(len(out.Files), "file") + "; this is revision " + out.Revision
	if version > 0 {
		text += ", signed as version " + strconv.FormatInt(version, 10)
	}
	if !out.Tests {
		p.note("there are no tests: rules like test_allow_reading in a file like policy_test.rego, package policy_test")
	}
	return p.printLine(text)
}
