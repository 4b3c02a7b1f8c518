# METADATA
# title: Deny and hide
# description: |
#   On servers with the label team, that team uses everything. For everybody
#   else there are only the tools that data.json shows to all: the others are
#   missing in lists, and unknown when they are called. Whatever the standard
#   policy denies stays denied.
package policy

import data.policy.standard

default allow := false

allow if {
	standard.allow
	is_visible
}

deny contains denial if some denial in standard.deny

# Nobody reads this but the log: what is hidden is answered as unknown.
deny contains {"code": "hidden_from_others", "message": message} if {
	not is_visible
	message := "this belongs to the server's team, and is hidden from everybody else"
}

hide if not is_visible

scopes_needed contains scope if some scope in standard.scopes_needed

# A server without a team is everybody's.
is_visible if not input.server.labels.team

is_visible if is_member

is_visible if input.action in {"open_stream", "identity.bootstrap", "identity.rotate"}

is_visible if input.call.method in {
	"initialize", "logging/setLevel",
	"tools/list", "prompts/list", "resources/list", "resources/templates/list",
}

# What is shown is listed, not what is hidden: a spelling that nobody thought of
# stays hidden.
is_visible if {
	input.call.method == "tools/call"
	some pattern in data.teams[input.server.labels.team].shown_to_all
	is_string(pattern)
	standard.covers(pattern, input.call.tool)
}

is_member if {
	some member in data.teams[input.server.labels.team].members
	is_the_principal(member)
}

# Every part of a member has to be the principal's, as in a grant. One without
# parts is nobody.
is_the_principal(member) if {
	is_object(member)
	count(member) > 0
	standard.is_for_the_principal({"principal": member})
}
