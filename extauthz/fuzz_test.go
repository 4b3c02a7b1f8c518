package extauthz_test

import (
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// FuzzPath holds that Check decides only the two forms of a path, whatever
// Envoy might let through: anything else is an error, never an allow.
func FuzzPath(f *testing.F) {
	srv := newServer()
	fix := newFixture(f, srv)
	_, value := fix.token(srv.GetId())
	good := "/servers/" + srv.GetId()
	for _, seed := range []string{
		good + "/rpc", good + "/mcp", good + "/rpc/", good + "/rpc?x", good + "/rpc;x", good + "/../" + srv.GetId() + "/rpc",
		strings.ToUpper(good) + "/rpc", good + "%2frpc", "//" + good[1:] + "/rpc", "", "/", good, good + "/identity/bootstrap",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		in := rpcCall(srv.GetId(), value, toolsList)
		in.path = path
		out, err := fix.check(in)
		if err != nil || out.GetOkResponse() == nil {
			return
		}
		id, found := strings.CutSuffix(strings.TrimPrefix(path, "/servers/"), "/rpc")
		parsed, parseErr := identity.ParseServerID(id)
		if !found || parseErr != nil || parsed.String() != srv.GetId() || path != good+"/rpc" {
			t.Errorf("%q was allowed", path)
		}
	})
}
