// Package layout_test holds the shape of the repository: who may import whom,
// how long a file may be, that generated files belong to their sources, and
// that no document points at a file that is gone. It belongs to no flow.
package layout_test

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	root     = "../.."
	module   = "github.com/arbiter-gateway/arbiter"
	maxLines = 500
)

// sources calls each for every Go file of the module, by its path from the root.
func sources(t *testing.T, each func(file string, content []byte)) {
	t.Helper()
	count := 0
	walk(t, ".go", func(file string) {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		count++
		each(file, content)
	})
	if count < 50 {
		t.Fatalf("found %d Go files only", count)
	}
}

// walk calls each for the files of the repository whose name ends with suffix.
// What starts with a dot, and what git ignores for being fetched or built, is
// not the repository's.
func walk(t *testing.T, suffix string, each func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		hidden := strings.HasPrefix(base, ".") && name != root
		if entry.IsDir() && (hidden || base == "bin" || base == "node_modules") {
			return filepath.SkipDir
		}
		if !entry.IsDir() && !hidden && strings.HasSuffix(base, suffix) {
			file, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			each(filepath.ToSlash(file))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// imports reads what a Go file imports.
func imports(t *testing.T, file string, content []byte) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, name)
	}
	return out
}

func TestImports(t *testing.T) {
	sources(t, func(file string, content []byte) {
		for _, imported := range imports(t, file, content) {
			if why := refuse(file, imported); why != "" {
				t.Errorf("%s imports %s: %s", file, imported, why)
			}
		}
	})
}

func TestFilesAreShort(t *testing.T) {
	sources(t, func(file string, content []byte) {
		if bytes.HasPrefix(content, []byte("// Code generated ")) {
			return
		}
		if lines := bytes.Count(content, []byte("\n")); lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: split it", file, lines, maxLines)
		}
	})
}

func TestNoPackageIsADrawer(t *testing.T) {
	sources(t, func(file string, _ []byte) {
		for folder := range strings.SplitSeq(path.Dir(file), "/") {
			switch folder {
			case "util", "utils", "common", "helper", "helpers", "types", "misc":
				t.Errorf("%s: %q does not say what it holds", file, folder)
			}
		}
	})
}
