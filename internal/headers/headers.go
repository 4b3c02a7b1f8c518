// Package headers says which HTTP headers policies may see and set: one list for
// the settings that name them, for the request that is decided and for its
// record. It belongs to no flow. Names are in lower case.
package headers

import (
	"slices"
	"strings"
)

// NameMost is how long a name may be, in bytes.
const NameMost = 128

// IsName reports a name that settings can hold: in lower case, of a to z, 0 to 9
// and "-".
func IsName(name string) bool {
	return name != "" && len(name) <= NameMost && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// secret carry what proves who is calling, or what opens a session or resumes a
// stream.
var secret = []string{
	"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "x-auth-token",
	"mcp-session-id", "last-event-id",
}

// Secret reports a header whose value is in no log and no record.
func Secret(name string) bool { return slices.Contains(secret, name) }

var (
	// hopByHop are of one connection (RFC 9110, section 7.6.1).
	hopByHop = []string{"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}

	unseen         = []string{"host", "content-length", "forwarded", "x-real-ip", "x-request-id"}
	unseenPrefixes = []string{"proxy-", "arbiter-", "x-arbiter-", "x-envoy-", "x-forwarded-"}

	unset         = []string{"expect", "origin", "via"}
	unsetPrefixes = []string{"content-", "accept", "mcp-", "access-control-", "sec-"}
)

// MaySee reports a header of a request that policies may see. They may not see
// secrets, what the gateway says itself, and what says about the caller what the
// gateway knows better.
func MaySee(name string) bool {
	return !Secret(name) && !slices.Contains(hopByHop, name) && !slices.Contains(unseen, name) && !begins(name, unseenPrefixes)
}

// MaySet reports a header that policies may set for an upstream. They may set
// none of those that they may not see, and none by which they would speak for
// the caller, or change how a message is framed, routed or understood.
func MaySet(name string) bool {
	return MaySee(name) && !slices.Contains(unset, name) && !begins(name, unsetPrefixes)
}

func begins(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
