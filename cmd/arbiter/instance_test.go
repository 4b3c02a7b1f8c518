package main

import (
	"os"
	"strings"
	"testing"
)

func TestInstanceNames(t *testing.T) {
	for _, row := range []struct{ instance, name, want string }{
		{"", extauthzSocket, "run/extauthz.sock"},
		{"", decisionsFile, "decisions.jsonl"},
		{"2", extauthzSocket, "run/extauthz-2.sock"},
		{"2", extauthzAdmin, "run/extauthz-admin-2.sock"},
		{"999", envoyAdminSocket, "run/envoy-admin-999.sock"},
		{"1", envoyBootstrap, "run/envoy-1.json"},
		{"16", decisionsFile, "decisions-16.jsonl"},
	} {
		if got := instance(row.instance).of(row.name); got != row.want {
			t.Errorf("%s of instance %q is %s, want %s", row.name, row.instance, got, row.want)
		}
	}
	if got := instance("").role("envoy") + " " + instance("2").role("envoy"); got != "envoy envoy-2" {
		t.Errorf("roles %s", got)
	}
}

// A number that is no number, or one that could be written in two ways, would
// be a path or a second pair of the same number.
func TestInstanceRefuses(t *testing.T) {
	for _, text := range []string{"", "1", "2", "999"} {
		if err := instance(text).check(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	s := newShell(t)
	for _, text := range []string{"0", "01", "+1", "-1", "1000", "x", " 1", "1/../2", "../x"} {
		for _, role := range []string{"extauthz", "envoy"} {
			s.run(role, "--instance="+text).fails("is not a number from 1 to 999")
		}
	}
	t.Setenv("ARBITER_INSTANCE", "0")
	s.run("extauthz").fails("ARBITER_INSTANCE")
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) > 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
}

// TestInstancePathsAreShort: the number counts, too.
func TestInstancePathsAreShort(t *testing.T) {
	s := newShell(t)
	long := s.dir + "/" + strings.Repeat("x", maxSocketPath-len(s.dir)-len("//"+extauthzAdmin))
	p := &program{data: long}
	if err := p.prepareData(""); err != nil {
		t.Errorf("the longest path: %v", err)
	}
	if err := p.prepareData("2"); err == nil || !strings.Contains(err.Error(), "longer than a unix socket's") {
		t.Errorf("with a number: %v", err)
	}
}
