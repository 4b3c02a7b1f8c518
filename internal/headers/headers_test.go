package headers_test

import (
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/headers"
)

func TestWhatPoliciesMaySeeAndSet(t *testing.T) {
	for _, row := range []struct {
		names       string
		secret      bool
		see, setToo bool
	}{
		{"authorization proxy-authorization cookie set-cookie x-api-key api-key x-auth-token mcp-session-id last-event-id", true, false, false},
		{"connection keep-alive te trailer transfer-encoding upgrade", false, false, false},
		{"host content-length forwarded x-real-ip x-request-id proxy-connection", false, false, false},
		{"arbiter-request-id x-arbiter-principal-id x-arbiter-policy-team x-envoy-retry-on x-forwarded-for x-forwarded-client-cert", false, false, false},
		{"expect origin via content-type content-encoding accept accept-encoding mcp-method mcp-protocol-version access-control-request-method sec-fetch-site", false, true, false},
		{"x-team user-agent traceparent x-tenant", false, true, true},
	} {
		for name := range strings.FieldsSeq(row.names) {
			if secret, see, set := headers.Secret(name), headers.MaySee(name), headers.MaySet(name); secret != row.secret || see != row.see || set != row.setToo {
				t.Errorf("%s: secret %t, seen %t, set %t", name, secret, see, set)
			}
		}
	}
}

func TestIsName(t *testing.T) {
	for name, want := range map[string]bool{
		"x-team": true, "0": true, strings.Repeat("x", headers.NameMost): true,
		"": false, "X-Team": false, "x team": false, "x_team": false, "x:y": false, "é": false, "x\n": false, strings.Repeat("x", headers.NameMost+1): false,
	} {
		if got := headers.IsName(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}
