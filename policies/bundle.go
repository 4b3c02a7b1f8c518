package policies

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// Bundle is a policy's source. Paths are relative and use slashes: what ends in
// .rego is a module, its tests in _test.rego; data.json and data.yaml hold data
// for the path that they lie in.
type Bundle struct {
	Files map[string][]byte
}

// Most of what a bundle may hold.
const (
	BundleMost = 8 << 20 // bytes, unpacked
	FilesMost  = 1000
)

// check refuses a bundle by its outside.
func (b Bundle) check() error {
	if len(b.Files) > FilesMost {
		return refuse(".", 0, "%d files, at most %d are read", len(b.Files), FilesMost)
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		size += len(name) + len(b.Files[name])
		switch err := CheckPath(name); {
		case err != nil && (IsSource(name) || !fs.ValidPath(name)):
			return refuse(name, 0, "%v", err)
		case name == decisionFile:
			return refuse(name, 0, "this name is taken by the question that Arbiter asks")
		case path.Base(name) == otherYAML:
			return refuse(name, 0, "data is read from data.json and data.yaml")
		}
	}
	if size > BundleMost {
		return refuse(".", 0, "%d bytes, at most %d are read", size, BundleMost)
	}
	return nil
}

// Revision names exactly this source: 16 hexadecimal digits of a SHA-256 over
// paths and bytes.
func (b Bundle) Revision() string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(b.Files)) {
		for _, part := range [][]byte{[]byte(path), b.Files[path]} {
			var length [8]byte
			binary.BigEndian.PutUint64(length[:], uint64(len(part)))
			h.Write(length[:])
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

var (
	//go:embed standard/policy.rego
	standardPolicy []byte
	//go:embed standard/policy_test.rego
	standardTests []byte
)

// Standard is the policy that decides until the operator brings another.
func Standard() Bundle {
	return Bundle{Files: map[string][]byte{"policy.rego": standardPolicy, "policy_test.rego": standardTests}}
}
