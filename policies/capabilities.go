package policies

import (
	"slices"
	"strings"
	"sync"
	_ "time/tzdata" // time zones, for time.clock and the like, where the machine has none

	"github.com/open-policy-agent/opa/v1/ast"
)

// capabilities are OPA's built-in functions without those that look outside of
// the input or answer twice differently: http.send, net.lookup_ip_addr,
// opa.runtime, time.now_ns, rand.intn, uuid.rfc4122, JSON schemas that may be
// fetched; without those that judge by the machine's clock, or make code of
// data; and without those that can run for long in one step.
var capabilities = sync.OnceValue(func() *ast.Capabilities {
	out := ast.CapabilitiesForThisVersion()
	out.AllowNet = []string{}
	out.Builtins = slices.DeleteFunc(out.Builtins, func(b *ast.Builtin) bool {
		return b.Nondeterministic || slices.Contains(forbidden, b.Name) || strings.HasPrefix(b.Name, "graphql.")
	})
	return out
})

var forbidden = []string{
	"crypto.x509.parse_and_verify_certificates", // by the clock
	"crypto.x509.parse_and_verify_certificates_with_options",
	"io.jwt.decode_verify",
	"providers.aws.sign_req",
	"rego.parse_module", // code of data
	"trace",
	"graph.reachable_paths", // for long
	"strings.render_template",
}
