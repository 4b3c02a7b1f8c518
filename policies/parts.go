package policies

import (
	"slices"
	"strings"
)

// part is one member of the input, or with all that lies below it: the unit in
// which is known what a policy can read. A set of parts is a part too.
type part uint64

const (
	partKind part = 1 << iota
	partID
	partName
	partPrincipalServer
	partScopes
	partClient
	partUser
	partIssuer
	partClaims
	partCertificate
	partServer
	partTransport
	partAction
	partMethod
	partTool
	partPrompt
	partResource
	partTemplate
	partTask
	partLevel
	partRef
	partSubscriptions
	partArguments
	partParams
	partVersion
	partNotification
	partBatch
	partVerb
	partPath
	partHost
	partSource
	partHeaders
	partTime
	partEnd

	everyPart     = partEnd - 1
	partPrincipal = partKind | partID | partName | partPrincipalServer | partScopes | partClient | partUser | partIssuer | partClaims | partCertificate
	partCall      = partMethod | partTool | partPrompt | partResource | partTemplate | partTask | partLevel | partRef | partSubscriptions |
		partArguments | partParams | partVersion | partNotification | partBatch
	partRequest = partVerb | partPath | partHost | partSource | partHeaders
)

// paths are those of the parts in the input, in their order.
var paths = [...]string{
	"principal.kind", "principal.id", "principal.name", "principal.server", "principal.scopes", "principal.client",
	"principal.user", "principal.issuer", "principal.claims", "principal.certificate",
	"server", "transport", "action",
	"call.method", "call.tool", "call.prompt", "call.resource", "call.resource_template", "call.task", "call.level",
	"call.ref", "call.subscriptions", "call.arguments", "call.params", "call.protocol_version", "call.notification",
	"call.batch_index",
	"request.method", "request.path", "request.host", "request.source", "request.headers",
	"time",
}

// has reports whether a part, or any of several, is one of ps.
func (ps part) has(one part) bool { return ps&one != 0 }

// partsAt are the parts that a reference to path can read: those below it, or
// the one that it goes into.
func partsAt(path []string) part {
	var out part
	for i, full := range paths {
		mine := strings.Split(full, ".")
		n := min(len(mine), len(path))
		if slices.Equal(mine[:n], path[:n]) {
			out |= 1 << i
		}
	}
	return out
}
