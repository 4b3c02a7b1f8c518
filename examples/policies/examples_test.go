// Package policies_test holds the examples to what they promise: each compiles
// as the gateway compiles it, passes its own tests, only ever narrows the
// standard policy, and answers whatever it is asked. It belongs to no flow.
package policies_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"

	"github.com/arbiter-gateway/arbiter/policies"
)

var update = flag.Bool("update", false, "copy the standard policy into the examples again")

// names are the examples, in the order of docs/policies.md.
var names = []string{"read-only", "tools-by-team", "arguments", "office-hours", "rate-limit", "deny-and-hide"}

// bundle reads an example as the gateway reads a directory.
func bundle(t *testing.T, name string) policies.Bundle {
	t.Helper()
	b := policies.Bundle{Files: map[string][]byte{}}
	for _, file := range []string{"policy.rego", "policy_test.rego", "standard.rego", "data.json"} {
		content, err := os.ReadFile(filepath.Join(name, file))
		if err != nil {
			t.Fatal(err)
		}
		b.Files[file] = content
	}
	return b
}

func each(t *testing.T, check func(t *testing.T, name string)) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) { check(t, name) })
	}
}

func TestExamplesAreAllHere(t *testing.T) {
	found, err := filepath.Glob("*/policy.rego")
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	if want := slices.Sorted(slices.Values(names)); !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestExamplesPassTheirTests(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		b := bundle(t, name)
		report, err := policies.Cover(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if err := report.Err(); err != nil {
			t.Error(err)
		}
		if lines := report.Coverage.Uncovered["policy.rego"]; len(lines) > 0 {
			t.Errorf("no test comes to the lines %v of policy.rego", lines)
		}
		denies, allows := count(b, "test_deny_"), count(b, "test_allow_")
		if ran := len(report.Passed) + len(report.Failed); allows == 0 || denies <= allows || ran != allows+denies {
			t.Errorf("%d tests ran; %d say deny, %d allow: each should say one, and most deny", ran, denies, allows)
		}
	})
}

func count(b policies.Bundle, prefix string) int {
	return len(regexp.MustCompile(`(?m)^`+prefix).FindAll(b.Files["policy_test.rego"], -1))
}

// TestExamplesAreOnTheStandardPolicy holds that standard.rego is the standard
// policy under another name: scopes and grants mean the same everywhere.
func TestExamplesAreOnTheStandardPolicy(t *testing.T) {
	want := bytes.Replace(policies.Standard().Files["policy.rego"], []byte("\npackage policy\n"), []byte("\npackage policy.standard\n"), 1)
	each(t, func(t *testing.T, name string) {
		if *update {
			if err := os.WriteFile(filepath.Join(name, "standard.rego"), want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := bundle(t, name).Files["standard.rego"]; !bytes.Equal(got, want) {
			t.Errorf("standard.rego is not the standard policy: go test ./examples/policies -update")
		}
	})
}

func TestExamplesAreFormattedAndDescribed(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		files := bundle(t, name).Files
		for _, file := range slices.Sorted(maps.Keys(files)) {
			if filepath.Ext(file) != ".rego" {
				continue
			}
			formatted, err := format.SourceWithOpts(file, files[file], format.Opts{RegoVersion: ast.RegoV1})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(formatted, files[file]) {
				t.Errorf("%s is not formatted as `opa fmt` does it", file)
			}
			module, err := ast.ParseModuleWithOpts(file, string(files[file]), ast.ParserOptions{ProcessAnnotation: true})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(module.Annotations, isDescription) {
				t.Errorf("%s has no METADATA with title and description on its package", file)
			}
		}
	})
}

func isDescription(a *ast.Annotations) bool {
	return a.Scope == "package" && a.Title != "" && a.Description != ""
}

func TestExamplesAreExplained(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		readme, err := os.ReadFile(filepath.Join(name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"arbiter policy test ", "arbiter policy apply "} {
			if !strings.Contains(string(readme), command+"examples/policies/"+name) {
				t.Errorf("README.md does not say %q of this directory", command)
			}
		}
	})
}
