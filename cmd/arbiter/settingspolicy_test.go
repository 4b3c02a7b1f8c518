package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

func TestPolicySettings(t *testing.T) {
	const key, at = "ARBITER_POLICY_BUNDLE_KEY=key.pem", "ARBITER_POLICY_BUNDLE_URL=https://a.example/b.tar.gz"
	for _, row := range []struct {
		name string
		env  []string
		want string // part of the error; "" is none
	}{
		{"nothing", nil, ""},
		{"a directory", []string{"ARBITER_POLICY_DIR=/etc/arbiter/policy"}, ""},
		{"a bundle", []string{at, key, "ARBITER_POLICY_BUNDLE_INTERVAL=1s"}, ""},
		{"a bundle and no directory", []string{at, key, "ARBITER_POLICY_DIR=none"}, ""},
		{"both", []string{at, key, "ARBITER_POLICY_DIR=p"}, "policies come from one of them"},
		{"unsigned", []string{at}, "needs policy_bundle_key"},
		{"a key of nothing", []string{key}, "set policy_bundle_url too"},
		{"a token of nothing", []string{"ARBITER_POLICY_BUNDLE_TOKEN_FILE=t"}, "set policy_bundle_url too"},
		{"in the clear", []string{"ARBITER_POLICY_BUNDLE_URL=http://a.example/b", key}, "neither https"},
		{"with a password", []string{"ARBITER_POLICY_BUNDLE_URL=https://u:canary@a.example/b", key}, "more than scheme"},
		{"too often", []string{at, key, "ARBITER_POLICY_BUNDLE_INTERVAL=900ms"}, "not between 1s"},
		{"headers", []string{"ARBITER_POLICY_REQUEST_HEADERS=x-team, user-agent", "ARBITER_POLICY_UPSTREAM_HEADERS=x-tenant"}, ""},
		{"the origin, to see", []string{"ARBITER_POLICY_REQUEST_HEADERS=origin"}, ""},
		{"the origin, to set", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=origin"}, "own"},
		{"a credential, to see", []string{"ARBITER_POLICY_REQUEST_HEADERS=x-team,authorization"}, `"authorization" is a secret`},
		{"a credential, to set", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=authorization"}, "secret"},
		{"a cookie", []string{"ARBITER_POLICY_REQUEST_HEADERS=cookie"}, "secret"},
		{"a proxy's", []string{"ARBITER_POLICY_REQUEST_HEADERS=proxy-authorization"}, "secret"},
		{"a session", []string{"ARBITER_POLICY_REQUEST_HEADERS=mcp-session-id"}, "secret"},
		{"ours", []string{"ARBITER_POLICY_REQUEST_HEADERS=x-arbiter-server"}, "own"},
		{"ours, to set", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=x-arbiter-policy-team"}, "own"},
		{"Envoy's", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=x-envoy-retry-on"}, "own"},
		{"an address", []string{"ARBITER_POLICY_REQUEST_HEADERS=x-forwarded-for"}, "own"},
		{"the host", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=host"}, "own"},
		{"a length", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=content-length"}, "own"},
		{"hop by hop", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=te"}, "own"},
		{"the protocol's", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=mcp-method"}, "own"},
		{"upper case", []string{"ARBITER_POLICY_REQUEST_HEADERS=X-Team"}, "lower case"},
		{"underscores, which some read as -", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=x_tenant"}, "lower case"},
		{"a line break", []string{"ARBITER_POLICY_UPSTREAM_HEADERS=x-a\r\nx-b"}, "lower case"},
		{"twice", []string{"ARBITER_POLICY_REQUEST_HEADERS=x-team,x-team"}, "twice"},
		{"too many", []string{"ARBITER_POLICY_REQUEST_HEADERS=" + strings.Repeat("x,", 33)}, "more than 32"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := readSettings("", row.env)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Fatalf("error %v, want %q", err, row.want)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// starting are the roles of a process that starts with these settings.
func starting(t *testing.T, dir string, env ...string) (*roles, *strings.Builder) {
	t.Helper()
	s, err := readSettings("", env)
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	p := &program{ctx: t.Context(), data: dir, now: time.Now, stdout: out, stderr: out}
	return &roles{p: p, settings: s, slog: slog.New(slog.NewTextHandler(out, nil))}, out
}

func TestPolicySource(t *testing.T) {
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "key.pem")
	if err := os.WriteFile(keyFile, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		env   []string
		ours  bool
		want  string // origin, or part of the error
		fault bool
	}{
		{"arbiter up", nil, true, "directory " + filepath.Join(dir, "policy"), false},
		{"arbiter control", nil, false, "", false},
		{"arbiter up without", []string{"ARBITER_POLICY_DIR=none"}, true, "", false},
		{"a directory of theirs", []string{"ARBITER_POLICY_DIR=" + dir + "/theirs"}, true, "directory " + dir + "/theirs", false},
		{"a key that is none", []string{"ARBITER_POLICY_BUNDLE_URL=https://a.example/b", "ARBITER_POLICY_BUNDLE_KEY=" + keyFile}, true, "not PEM", true},
		{"no key", []string{"ARBITER_POLICY_BUNDLE_URL=https://a.example/b", "ARBITER_POLICY_BUNDLE_KEY=" + dir + "/none.pem"}, true, "policy_bundle_key", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, _ := starting(t, dir, row.env...)
			source, err := r.policySource(row.ours)
			switch {
			case row.fault:
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("error %v, want %q", err, row.want)
				}
			case err != nil:
				t.Error(err)
			case (source != nil) != (row.want != "") || source != nil && source.Origin() != row.want:
				t.Errorf("source %v, want %q", source, row.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "theirs")); err == nil {
		t.Error("a directory of theirs was made")
	}
}

// dirOf reads what lies in the policy directory.
func dirOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, policyDirectory))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, policyDirectory, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// earlier is what an earlier release wrote.
func earlier() policies.Bundle {
	return policies.Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\nallow := true\n"), "old.rego": []byte("package policy.old\n")}}
}

// A directory that nobody has edited follows the release; an edited one stays.
func TestStandardDirectory(t *testing.T) {
	standard := policies.Standard()
	for _, row := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		ours    bool // it holds the standard policy afterwards
		kept    string
	}{
		{"first start", func(*testing.T, string) {}, true, ""},
		{"an earlier release's", func(t *testing.T, dir string) { writeEarlier(t, dir) }, true, ""},
		{"an earlier release's, with notes", func(t *testing.T, dir string) {
			writeEarlier(t, dir)
			writeInto(t, dir, "policy/notes.md", "mine")
		}, true, "notes.md"},
		{"edited", func(t *testing.T, dir string) {
			writeEarlier(t, dir)
			writeInto(t, dir, "policy/policy.rego", "package policy\n\nallow := false\n")
		}, false, "old.rego"},
		{"with a file more", func(t *testing.T, dir string) {
			writeEarlier(t, dir)
			writeInto(t, dir, "policy/more.rego", "package policy.more\n")
		}, false, "more.rego"},
		{"somebody's own", func(t *testing.T, dir string) {
			writeEarlier(t, dir)
			remove(t, filepath.Join(dir, standardFile))
		}, false, "old.rego"},
		{"emptied", func(t *testing.T, dir string) {
			writeEarlier(t, dir)
			remove(t, filepath.Join(dir, "policy", "policy.rego"))
			remove(t, filepath.Join(dir, "policy", "old.rego"))
		}, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			row.prepare(t, dir)
			for range 2 { // the second start finds what the first one left
				r, _ := starting(t, dir)
				if err := r.prepareStandard(); err != nil {
					t.Fatal(err)
				}
			}
			files := dirOf(t, dir)
			is := files["policy.rego"] == string(standard.Files["policy.rego"]) && files["policy_test.rego"] == string(standard.Files["policy_test.rego"])
			if is != row.ours || row.ours && files["old.rego"] != "" {
				t.Errorf("standard: %v, want %v; files %q", is, row.ours, files)
			}
			if _, kept := files[row.kept]; row.kept != "" && !kept {
				t.Errorf("%s is gone", row.kept)
			}
			drafts, err := filepath.Glob(filepath.Join(dir, ".draft-*"))
			if err != nil || len(drafts) > 0 {
				t.Errorf("left over: %v, %v", drafts, err)
			}
		})
	}
}

func writeInto(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeEarlier(t *testing.T, dir string) {
	t.Helper()
	for name, text := range earlier().Files {
		writeInto(t, dir, filepath.Join(policyDirectory, name), string(text))
	}
	writeInto(t, dir, standardFile, earlier().Revision()+"\n")
}

func TestDoctorShowsThePolicy(t *testing.T) {
	s := healthy(t).serve()
	s.run("doctor").ok(policies.Standard().Revision(), "standard, since")
}

func TestDoctorShowsARefusedPolicy(t *testing.T) {
	s := healthy(t)
	writeInto(t, s.dir, "policy/policy.rego", "package policy\n\nallow := input.nobody\n")
	before, err := store.Open(t.Context(), store.Config{Path: filepath.Join(s.dir, databaseFile), Key: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	good := policies.Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n\nallow := true\n")}}
	if _, err := before.AddPolicy(t.Context(), store.Policy{Revision: good.Revision(), Origin: "here", Files: good.Files}); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	r, _ := starting(t, s.dir)
	if s.source, err = r.policySource(true); err != nil {
		t.Fatal(err)
	}
	out := s.serve().run("doctor")
	if out.code != 1 || !strings.Contains(out.stdout, "policy.rego:3: ") || !strings.Contains(out.stdout, good.Revision()+" goes on deciding") {
		t.Errorf("exit code %d:\n%s", out.code, out.stdout)
	}
}
