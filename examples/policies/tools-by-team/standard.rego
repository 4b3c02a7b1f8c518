# METADATA
# title: The standard policy
# description: |
#   Two things narrow what a live credential may do on its server: the scopes
#   that it was made with, and the server's grants. Where there are none,
#   everything is allowed. Copy this directory to write your own.
package policy.standard

default allow := false

allow if {
	scopes_suffice
	grants_suffice
}

deny contains {"code": "scope_missing", "message": message} if {
	not scopes_suffice
	message := sprintf("%s needs the scope %s, which this credential does not have; ask the server's owner for a token with that scope", [what_is_asked, concat(" or ", sufficient_scopes)])
}

deny contains {"code": "tool_not_granted", "message": message} if {
	not grants_suffice
	message := sprintf("no grant of this server lets this credential use the tool %q; ask the server's owner for one", [input.call.tool])
}

scopes_needed contains scope if {
	not scopes_suffice
	some scope in sufficient_scopes
}

scopes_suffice if {
	some scope in input.principal.scopes
	scope in sufficient_scopes
}

# Rotating takes the identity's own certificate, whatever it may call.
scopes_suffice if input.action == "identity.rotate"

# A credential that was made without scopes has none here, and is not narrowed.
# One that was narrowed to nothing has an empty list.
scopes_suffice if not input.principal.scopes

# One of these is enough.
default sufficient_scopes := {"mcp:connect"}

sufficient_scopes := {"tools:call", concat("", ["tools:call:", input.call.tool])} if input.call.method == "tools/call"

sufficient_scopes := {"tools:call"} if {
	input.call.method == "tools/call"
	not input.call.tool
}

sufficient_scopes := {"identity:bootstrap"} if input.action == "identity.bootstrap"

# Where a server has grants, they are all there is to say who may use a tool.
grants_suffice if not input.server.grants

grants_suffice if not input.call.method == "tools/call"

grants_suffice if {
	some grant in input.server.grants
	is_for_the_principal(grant)
	some pattern in grant.tools
	covers(pattern, input.call.tool)
}

# Every part that a grant names has to be the principal's; one that names none
# is for everybody.
is_for_the_principal(grant) if {
	every part, value in grant.principal {
		principal_is(part, value)
	}
}

principal_is("kind", value) if input.principal.kind == value

principal_is("id", value) if input.principal.id == value

principal_is("client", value) if input.principal.client == value

principal_is("user", value) if input.principal.user == value

principal_is("issuer", value) if input.principal.issuer == value

covers(pattern, tool) if pattern == tool

covers(pattern, tool) if {
	endswith(pattern, "*")
	startswith(tool, trim_suffix(pattern, "*"))
}

default what_is_asked := "this"

what_is_asked := sprintf("calling the tool %q", [input.call.tool]) if input.call.method == "tools/call"
