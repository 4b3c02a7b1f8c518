package extauthz

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arbiter-gateway/arbiter/extauthz/wire"
	"github.com/arbiter-gateway/arbiter/internal/headers"
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

// policyFault is an answer of the policy that cannot be followed. It names
// nothing that the policy said, which may hold an argument's value.
type policyFault struct{ revision, what string }

func (e *policyFault) Error() string { return "policy " + e.revision + ": " + e.what }

func (d *decision) policyFault(what string) error {
	return &policyFault{d.snap.policy.Revision(), what}
}

// newPolicyHeaders refuses names by which a policy would see a credential, or
// change how a request is framed, routed or understood.
func newPolicyHeaders(seen, set []string) (policyHeaders, error) {
	for _, name := range seen {
		if !headers.IsName(name) || !headers.MaySee(name) {
			return policyHeaders{}, fmt.Errorf("gateway settings: policies cannot see the request header %q", name)
		}
	}
	for _, name := range set {
		if !headers.IsName(name) || !headers.MaySet(name) {
			return policyHeaders{}, fmt.Errorf("gateway settings: policies cannot set the upstream header %q", name)
		}
	}
	return policyHeaders{seen: seen, set: set}, nil
}

// allows reports whether a policy may set a header.
func (p *policyHeaders) allows(name string) bool {
	return strings.HasPrefix(name, policyPrefix) && len(name) > len(policyPrefix) || slices.Contains(p.set, name)
}

// setHeaders keeps what a policy wants to tell the upstream. What it may not
// set, and what contradicts another message of the batch, is the policy's
// fault.
func (d *decision) setHeaders(said []policies.Header) error {
	for _, h := range said {
		if !d.snap.gateway.policy.allows(h.Name) {
			return d.policyFault("it sets a header that policy_upstream_headers does not list")
		}
		at := slices.IndexFunc(d.headers, func(before policies.Header) bool { return before.Name == h.Name })
		switch {
		case at < 0:
			d.headers = append(d.headers, h)
		case d.headers[at].Value != h.Value:
			return d.policyFault("it sets one header to two values for one batch")
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
