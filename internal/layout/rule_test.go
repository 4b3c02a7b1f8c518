package layout_test

import (
	"path"
	"strings"
	"testing"
)

// roles are the folders that are a process each.
var roles = map[string]bool{"extauthz": true, "control": true, "issuer": true}

// borrowed are the parts of a role that another role may import.
var borrowed = map[[2]string]bool{
	{"control", "extauthz/jsonrpc"}:  true, // what a method's selector is
	{"control", "extauthz/upstream"}: true, // what an upstream URL may be
}

// refuse says why a file must not import a package, or "" when it may:
//
//	cmd -> roles, envoy -> policies, xds, internal
//
// with roles apart from one another, and xds/client a leaf. Tests obey too, but
// may run Envoy and may use what only tests use.
func refuse(file, imported string) string {
	test := strings.HasSuffix(file, "_test.go")
	from := path.Dir(file)
	switch {
	case imported == "encoding/json" && first(from) == "extauthz" && !test:
		return "encoding/json takes what another parser reads differently; use go-json-experiment"
	case strings.HasPrefix(imported, "github.com/hashicorp/vault/") && !isVault(file):
		return "only issuer/vault*.go knows Vault"
	case imported == module:
		return "there is no package at the root"
	}
	to, ours := strings.CutPrefix(imported, module+"/")
	if !ours || to == from {
		return ""
	}
	return refuseOurs(from, to, test)
}

func isVault(file string) bool {
	matched, err := path.Match("issuer/vault*.go", file)
	return err == nil && matched
}

// refuseOurs judges an import between two packages of the module.
func refuseOurs(from, to string, test bool) string {
	testOnly := first(to) == "e2e" || to == "internal/testfleet" || path.Base(to) == "storetest"
	switch a, b := first(from), first(to); {
	case b == "cmd":
		return "cmd is on top"
	case testOnly && !test && a != "e2e":
		return "only tests use it"
	case b == a && a == "xds" && from == "xds/client":
		return "xds/client is a leaf"
	case b == a:
		return ""
	case roles[b] && a != "cmd" && !borrowed[[2]string{a, to}]:
		return "only cmd puts roles together"
	case b == "envoy" && a != "cmd" && !test:
		return "only cmd runs Envoy"
	case from == "xds/client" && to != "internal/proto" && !test:
		return "xds/client is a leaf"
	case a == "internal" && b != "internal":
		return "what is shared knows nobody who shares it"
	case (a == "policies" || a == "xds" || a == "envoy") && b != "internal" && !test:
		return "below a role only internal is shared"
	}
	return ""
}

func first(folder string) string {
	name, _, _ := strings.Cut(folder, "/")
	return name
}

func TestImportRule(t *testing.T) {
	tests := []struct {
		file, imported string
		want           bool
	}{
		{"cmd/arbiter/up.go", module + "/extauthz", true},
		{"cmd/arbiter/up.go", module + "/envoy", true},
		{"control/feed.go", module + "/xds", true},
		{"control/api/servers.go", module + "/extauthz/upstream", true},
		{"control/api/servers.go", module + "/policies", true},
		{"extauthz/check.go", module + "/extauthz/session", true},
		{"extauthz/check.go", module + "/xds/client", true},
		{"extauthz/record.go", "encoding/json", false},
		{"extauthz/check_test.go", "encoding/json", true},
		{"control/service.go", "encoding/json", true},
		{"xds/gateway_envoy_test.go", module + "/envoy", true},
		{"xds/client/client.go", module + "/internal/proto", true},
		{"issuer/vault.go", "github.com/hashicorp/vault/api", true},
		{"e2e/gateway_test.go", module + "/internal/testfleet", true},
		{"internal/store/tokens.go", module + "/internal/token", true},
		{"internal/store/sqlite_test.go", module + "/internal/store/storetest", true},

		{"extauthz/check.go", module + "/control", false},
		{"extauthz/check_test.go", module + "/control", false},
		{"extauthz/check.go", module + "/control/api", false},
		{"control/service.go", module + "/extauthz", false},
		{"control/service.go", module + "/extauthz/session", false},
		{"extauthz/check.go", module + "/issuer", false},
		{"issuer/sign.go", module + "/extauthz/jsonrpc", false},
		{"e2e/gateway_test.go", module + "/extauthz", false},
		{"internal/demo/demo.go", module + "/extauthz/jsonrpc", false},
		{"internal/demo/demo.go", module + "/policies", false},
		{"internal/demo/demo.go", module + "/internal/testfleet", false},
		{"extauthz/check.go", module + "/cmd/arbiter", false},
		{"extauthz/check.go", module + "/envoy", false},
		{"extauthz/check.go", module, false},
		{"extauthz/check.go", "encoding/json", false},
		{"extauthz/jsonrpc/parse.go", "encoding/json", false},
		{"xds/translate.go", module + "/policies", false},
		{"xds/translate.go", module + "/control", false},
		{"xds/client/client.go", module + "/xds", false},
		{"xds/client/client.go", module + "/internal/store", false},
		{"policies/policies.go", module + "/extauthz/jsonrpc", false},
		{"policies/policies.go", module + "/xds", false},
		{"issuer/sign.go", "github.com/hashicorp/vault/api", false},
		{"control/service.go", "github.com/hashicorp/vault/api", false},
		{"internal/store/tokens.go", module + "/internal/store/storetest", false},
	}
	for _, tt := range tests {
		if why := refuse(tt.file, tt.imported); (why == "") != tt.want {
			t.Errorf("%s imports %s: allowed %t, want %t (%s)", tt.file, tt.imported, why == "", tt.want, why)
		}
	}
}
