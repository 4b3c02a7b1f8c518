package extauthz

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	"github.com/arbiter-gateway/arbiter/policies"
)

// policyHeaders are the header names that the settings open to policies, in
// lower case.
type policyHeaders struct {
	seen []string // a policy sees the caller's
	set  []string // a policy may set them for the upstream; a caller's own are removed
}

// policyPrefix begins names that every policy may set. Envoy removes what a
// client sends under it.
const policyPrefix = "x-arbiter-policy-"

// seenMost bounds the headers of a request that a policy sees, in bytes of
// names and values.
const seenMost = 4 << 10

var errHeaderConflict = errors.New("the policy sets one header to two values for one batch")

// newPolicyHeaders refuses names by which a policy would see a credential, or
// change how a request is framed, routed or understood.
func newPolicyHeaders(seen, set []string) (policyHeaders, error) {
	for _, name := range seen {
		if !headerName(name) || slices.Contains([]string{"authorization", "cookie", "proxy-authorization", headerSessionID}, name) {
			return policyHeaders{}, fmt.Errorf("gateway settings: policies cannot see the request header %q", name)
		}
	}
	for _, name := range set {
		if !headerName(name) || reserved(name) {
			return policyHeaders{}, fmt.Errorf("gateway settings: policies cannot set the upstream header %q", name)
		}
	}
	return policyHeaders{seen: seen, set: set}, nil
}

func headerName(name string) bool {
	return name != "" && len(name) <= 128 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// reserved are the names that the protocols and the gateway itself use.
func reserved(name string) bool {
	switch name {
	case "authorization", "cookie", "set-cookie", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
		"host", "expect", "origin", "forwarded", "via", "last-event-id":
		return true
	}
	return slices.ContainsFunc([]string{
		"proxy-", "content-", "accept", "mcp-", "arbiter-", "x-arbiter-", "x-envoy-", "x-forwarded-", "access-control-", "sec-",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// allows reports whether a policy may set a header.
func (p *policyHeaders) allows(name string) bool {
	return strings.HasPrefix(name, policyPrefix) && len(name) > len(policyPrefix) || slices.Contains(p.set, name)
}

// setHeaders keeps what a policy wants to tell the upstream. What it may not
// set, and what contradicts another message of the batch, is the policy's
// fault.
func (d *decision) setHeaders(headers []policies.Header) error {
	for _, h := range headers {
		if !d.snap.gateway.policy.allows(h.Name) {
			return fmt.Errorf("the policy sets the header %q, which no setting lists", h.Name)
		}
		at := slices.IndexFunc(d.headers, func(before policies.Header) bool { return before.Name == h.Name })
		switch {
		case at < 0:
			d.headers = append(d.headers, h)
		case d.headers[at].Value != h.Value:
			return errHeaderConflict
		}
	}
	return nil
}

// policyLines are the policy's headers for the upstream, and the caller's own
// that go under a name which a policy could have set.
func policyLines(d *decision) (set headerLines, remove []string) {
	for _, h := range d.headers {
		set = append(set, wire.Pair{h.Name, h.Value})
	}
	for _, name := range d.snap.gateway.policy.set {
		if !slices.ContainsFunc(d.headers, func(h policies.Header) bool { return h.Name == name }) {
			remove = append(remove, name)
		}
	}
	return set, remove
}
