package bundle_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/bundle"
)

// directory makes files, and links where the content begins with "-> ".
func directory(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, filepath.FromSlash(files[i]))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, isLink := strings.CutPrefix(files[i+1], "-> "); isLink {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(files[i+1]), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadDir(t *testing.T) {
	for _, test := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"one file", []string{"policy.rego", rego}, []string{"policy.rego"}},
		{"everything", []string{
			"policy.rego", rego, "policy_test.rego", "x", "teams/data.yaml", "a: 1", "teams/more/data.json", "{}", "data.yml", "x",
			"README.md", "x", "grants.json", "x", ".git/a.rego", "x", ".hidden.rego", "x", "teams/.x/data.json", "x",
		}, []string{"data.yml", "policy.rego", "policy_test.rego", "teams/data.yaml", "teams/more/data.json"}},
		{"as Kubernetes mounts it", []string{"..2026_01/policy.rego", rego, "..data", "-> ..2026_01", "policy.rego", "-> ..data/policy.rego"}, []string{"policy.rego"}},
		{"a link that stays", []string{"a/policy.rego", rego, "policy.rego", "-> a/policy.rego"}, []string{"a/policy.rego", "policy.rego"}},
		{"a link to what is not read", []string{"policy.rego", rego, "README", "-> /etc/passwd", "gone", "-> nowhere"}, []string{"policy.rego"}},
		{"an odd name of what is not read", []string{"policy.rego", rego, "LÎSEZ MOI.md", "x"}, []string{"policy.rego"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := bundle.ReadDir(directory(t, test.files...))
			if err != nil || !slices.Equal(names(got), test.want) || string(got.Files["policy.rego"]) != rego {
				t.Errorf("read %v, %v; want %v", names(got), err, test.want)
			}
		})
	}
}

func TestReadDirRejects(t *testing.T) {
	elsewhere := directory(t, "secret.rego", rego)
	for _, test := range []struct {
		name  string
		files []string
		want  string
	}{
		{"no Rego", []string{"data.json", "{}"}, "there is no Rego"},
		{"a link out of it", []string{"policy.rego", rego, "a.rego", "-> " + elsewhere + "/secret.rego"}, "a.rego is a link out of the directory"},
		{"a link out of it and up", []string{"policy.rego", rego, "a/data.json", "-> ../../../../../etc/passwd"}, "a/data.json is a link out of the directory"},
		{"a link to nothing", []string{"policy.rego", rego, "a.rego", "-> nowhere"}, "no such file"},
		{"a link to itself", []string{"policy.rego", rego, "a.rego", "-> a.rego"}, "a.rego"},
		{"a link to a directory", []string{"policy.rego", rego, "a/x.rego", rego, "b", "-> a"}, "b is a link to a directory"},
		{"a link to a directory elsewhere", []string{"policy.rego", rego, "b", "-> " + elsewhere}, "b is a link to a directory"},
		{"an ending in another case", []string{"policy.rego", rego, "deny.Rego", rego}, "deny.Rego would be left out"},
		{"a directory as a file", []string{"policy.rego", rego, "a/x", "x", "a.rego", "-> a"}, "a.rego is no regular file"},
		{"a name beyond ASCII", []string{"pоlicy.rego", rego}, `"p\u043elicy.rego"`},
		{"a name with a line break", []string{"a\nb.rego", rego}, `"a\nb.rego"`},
		{"a directory's name with a space", []string{"a b/policy.rego", rego}, `"a b/policy.rego"`},
		{"too much", []string{"policy.rego", rego, "data.json", strings.Repeat(" ", policies.BundleMost)}, "more than 8388608 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := bundle.ReadDir(directory(t, test.files...))
			if err == nil || !strings.Contains(err.Error(), test.want) || got.Files != nil {
				t.Errorf("read %v, %v; want %q", names(got), err, test.want)
			}
		})
	}
}

func TestReadDirRejectsOtherThings(t *testing.T) {
	if _, err := bundle.ReadDir(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	file := filepath.Join(directory(t, "policy.rego", rego), "policy.rego")
	if _, err := bundle.ReadDir(file); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Error(err)
	}
	pipe := directory(t, "policy.rego", rego)
	if err := syscall.Mkfifo(filepath.Join(pipe, "a.rego"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.ReadDir(pipe); err == nil || !strings.Contains(err.Error(), "a.rego is no regular file") {
		t.Error(err)
	}
	many := directory(t, "policy.rego", rego)
	for i := range 4 * policies.FilesMost {
		if err := os.WriteFile(filepath.Join(many, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bundle.ReadDir(many); err == nil || !strings.Contains(err.Error(), "more than 4000 files") {
		t.Error(err)
	}
}
