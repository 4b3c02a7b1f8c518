package layout_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write internal/proto/SHA256SUMS")

// TestGeneratedProtobuf holds that the generated files are those that `make
// golden` made of the .proto files as they are, without asking for protoc.
func TestGeneratedProtobuf(t *testing.T) {
	folder := filepath.Join(root, "internal", "proto")
	sums := filepath.Join(folder, "SHA256SUMS")
	var got strings.Builder
	for _, name := range slices.Concat(glob(t, folder, "*.proto"), glob(t, folder, "*.pb.go")) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%x  %s\n", sha256.Sum256(content), filepath.Base(name))
	}
	if *update {
		if err := os.WriteFile(sums, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("files changed since `make golden`:\n%s\nit made:\n%s", got.String(), want)
	}
}

func glob(t *testing.T, folder, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s in %s: found %d, %v", pattern, folder, len(found), err)
	}
	return found
}
