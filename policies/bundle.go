package policies

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
)

// Bundle is a policy's source. Paths are relative and use slashes: what ends in
// .rego is a module, its tests in _test.rego; data.json and data.yaml hold data
// for the path that they lie in.
type Bundle struct {
	Files map[string][]byte
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
