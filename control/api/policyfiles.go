package api

import (
	"errors"
	"maps"
	"slices"

	"github.com/arbiter-gateway/arbiter/policies"
)

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

// checkPath also refuses a file that no policy reads.
func checkPath(name string) error {
	if err := policies.CheckPath(name); err != nil {
		return err
	}
	if !policies.IsSource(name) {
		return errors.New("is not read by a policy: a file ends in .rego, or is data.json or data.yaml")
	}
	return nil
}
