package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/bundle"
)

// prepareStandard makes the policy directory of the data directory with the
// standard policy in it. One that nobody has edited since it was made gets the
// standard policy of this program, should it be another one: the file beside the
// directory says which one was written. An edited one is left alone.
func (r *roles) prepareStandard() error {
	dir, standard := r.p.file(policyDirectory), policies.Standard()
	_, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = r.p.makeStandard(dir, standard)
	case err == nil:
		err = r.renewStandard(dir, standard)
	}
	if err != nil {
		return fmt.Errorf("policy directory: %w", err)
	}
	return nil
}

// makeStandard makes the directory whole or not at all. What it is goes down
// first: a directory without it would count as edited for ever.
func (p *program) makeStandard(dir string, standard policies.Bundle) error {
	draft, err := os.MkdirTemp(p.data, ".draft-*") // mode 0700
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(draft) }() // gone after the rename
	for name, text := range standard.Files {
		if err := os.WriteFile(filepath.Join(draft, name), text, 0o600); err != nil {
			return err
		}
	}
	if err := p.writeFile(standardFile, []byte(standard.Revision()+"\n")); err != nil {
		return err
	}
	return os.Rename(draft, dir)
}

// renewStandard replaces the files of an earlier standard policy.
func (r *roles) renewStandard(dir string, standard policies.Bundle) error {
	written, err := os.ReadFile(r.p.file(standardFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the operator's own
	}
	if err != nil {
		return err
	}
	found, err := bundle.ReadDir(dir)
	revision := strings.TrimSpace(string(written))
	if err != nil || found.Revision() != revision || revision == standard.Revision() {
		return nil //nolint:nilerr // edited, and control says what is wrong with it; or up to date
	}
	for name, text := range standard.Files {
		if err := r.p.writeFile(filepath.Join(policyDirectory, name), text); err != nil {
			return err
		}
	}
	for name := range found.Files {
		if _, stays := standard.Files[name]; !stays {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	r.slog.Info("the standard policy, which nobody has edited, is now that of this release", "directory", dir, "before", revision, "now", standard.Revision())
	return r.p.writeFile(standardFile, []byte(standard.Revision()+"\n"))
}

// writeFile replaces a file of the data directory whole, for this user only.
func (p *program) writeFile(name string, text []byte) error {
	draft, err := os.CreateTemp(p.data, ".draft-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft.Name()) }() // gone after the rename
	_, err = draft.Write(text)
	if err = errors.Join(err, draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), p.file(name))
}
