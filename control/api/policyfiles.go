package api

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/arbiter-gateway/arbiter/policies"
)

// maxPath is how long the path of a policy's file may be, in bytes.
const maxPath = 255

// filesField is a bundle as it comes in: path to text.
type filesField = optional[map[string]optional[string]]

// bundle checks the files of a request. Nothing of them is written anywhere by
// its path; but people copy them to disks, and a file that no policy reads is a
// mistake that would be missed.
func bundle(f filesField, found *faults) policies.Bundle {
	out := policies.Bundle{Files: make(map[string][]byte, len(f.value))}
	if len(f.value) == 0 {
		found.add("files", "must be given: an object of path and text")
	}
	if len(f.value) > policies.FilesMost {
		found.add("files", "are more than %d", policies.FilesMost)
		return out
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(f.value)) {
		text := f.value[name]
		if err := checkPath(name); err != nil {
			found.add("files."+shorten(name), "%v", err)
		}
		if text.null {
			found.add("files."+shorten(name), "must be a string")
		}
		size += len(name) + len(text.value)
		out.Files[name] = []byte(text.value)
	}
	if size > policies.BundleMost {
		found.add("files", "are longer than %d MiB together", policies.BundleMost>>20)
	}
	return out
}

// checkPath allows what stays inside of a directory on every system, and reads
// in one way only (bundle.ReadDir takes the same).
func checkPath(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	switch {
	case len(name) > maxPath:
		return fmt.Errorf("its path is longer than %d bytes", maxPath)
	case strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(allowed, r) }):
		return errors.New("its path has something else in it than A to Z, a to z, 0 to 9, '/', '.', '_' and '-'")
	case !fs.ValidPath(name) || strings.Contains("/"+name, "/."):
		return errors.New("its path must be relative, with slashes, and no part of it may begin with a dot")
	}
	if base := path.Base(name); path.Ext(base) != ".rego" && base != "data.json" && base != "data.yaml" {
		return errors.New("is not read by a policy: a file ends in .rego, or is data.json or data.yaml")
	}
	return nil
}
