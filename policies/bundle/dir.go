package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/arbiter-gateway/arbiter/policies"
)

// entriesMost is how many entries of a directory are looked at: a mistaken
// path should not take a walk through the whole machine.
const entriesMost = 4 * policies.FilesMost

// ReadDir reads the policy in a directory and below it: *.rego, data.json and
// data.yaml. What begins with a dot is not looked at, nor is any other file.
// Links are followed as long as they stay in the directory, and a directory
// behind a link only where its name begins with a dot and a link to a file goes
// through it, as Kubernetes mounts them. It reads file by file: a bundle that
// somebody is just writing may be half of one.
func ReadDir(dir string) (policies.Bundle, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return policies.Bundle{}, fmt.Errorf("reading the policy: %w", err)
	}
	defer func() { _ = root.Close() }()
	found, seen := newCollector(), 0
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen++; seen > entriesMost {
			return fmt.Errorf("there are more than %d files and directories", entriesMost)
		}
		if name != "." && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return found.visit(root, name, entry)
	})
	if err != nil {
		return policies.Bundle{}, fmt.Errorf("reading the policy in %s: %w", dir, err)
	}
	b, err := found.bundle()
	if err != nil {
		return policies.Bundle{}, fmt.Errorf("reading the policy in %s: %w", dir, err)
	}
	return b, nil
}

// visit reads an entry if it is a file of a policy.
func (c *collector) visit(root *os.Root, name string, entry fs.DirEntry) error {
	if ext := path.Ext(name); ext != ".rego" && strings.EqualFold(ext, ".rego") && !entry.IsDir() {
		return fmt.Errorf("%s would be left out: its name has to end in .rego", name)
	}
	if entry.IsDir() || !policies.IsSource(name) && entry.Type()&fs.ModeSymlink == 0 {
		return nil
	}
	info, err := root.Stat(name)
	switch {
	case !policies.IsSource(name):
		if err != nil { // outside of it, or nowhere
			info, err = os.Stat(filepath.Join(root.Name(), filepath.FromSlash(name)))
		}
		if err == nil && info.IsDir() {
			return fmt.Errorf("%s is a link to a directory, whose files would be left out: put them here", name)
		}
		return nil // a link to something that is not read anyway
	case err != nil:
		return outside(name, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", name)
	}
	if err := checkPath(name); err != nil {
		return err
	}
	content, err := readFile(root, name, c.room())
	if err != nil {
		return outside(name, err)
	}
	return c.add(path.Clean(name), content)
}

// readFile reads no more than most bytes, however large the file is or grows.
func readFile(root *os.Root, name string, most int64) ([]byte, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(content)) > most {
		err = errTooLarge
	}
	return content, err
}

// outside words what os.Root says about a link that leaves it.
func outside(name string, err error) error {
	if inPath, ok := errors.AsType[*fs.PathError](err); ok && strings.Contains(inPath.Err.Error(), "escapes") {
		return fmt.Errorf("%s is a link out of the directory", name)
	}
	return err
}
