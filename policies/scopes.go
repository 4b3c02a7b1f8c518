package policies

// The scopes of access tokens (contract section 2), which the standard policy
// reads.
const (
	ScopeConnect    = "mcp:connect"
	ScopeTools      = "tools:call"
	ScopeToolPrefix = "tools:call:"
	ScopeBootstrap  = "identity:bootstrap"
)
