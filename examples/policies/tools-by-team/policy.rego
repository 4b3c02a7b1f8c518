# METADATA
# title: Tools by team
# description: |
#   data.json says who is in which team, and which tools a team may use on
#   servers of which kind (label kind). Who is in no team that has something to
#   do on a server may not even connect. Whatever the standard policy denies
#   stays denied.
package policy

import data.policy.standard

default allow := false

allow if {
	standard.allow
	may_use
}

deny contains denial if some denial in standard.deny

deny contains {"code": "no_team", "message": message} if {
	count(patterns) == 0
	not is_upkeep
	message := "none of your teams has anything to do on this server; ask the server's owner to add you to one"
}

deny contains {"code": "tool_of_another_team", "message": message} if {
	uses_a_tool
	count(patterns) > 0
	not may_use
	message := sprintf("the tool %q is none of those of your team (%s); take one of tools/list, or ask the server's owner", [input.call.tool, concat(", ", teams)])
}

scopes_needed contains scope if some scope in standard.scopes_needed

may_use if {
	uses_a_tool
	some pattern in patterns
	standard.covers(pattern, input.call.tool)
}

may_use if {
	not uses_a_tool
	count(patterns) > 0
}

may_use if is_upkeep

# An identity stays alive without its team: what it may call is asked each time.
is_upkeep if input.action == "identity.rotate"

uses_a_tool if input.call.method == "tools/call"

# What the principal's teams may use on servers of this kind.
patterns contains pattern if {
	some team in teams
	some pattern in data.teams[team].tools[input.server.labels.kind]
	is_string(pattern)
}

teams contains name if {
	some name, team in data.teams
	some member in team.members
	is_the_principal(member)
}

# Every part of a member has to be the principal's, as in a grant. One without
# parts is nobody.
is_the_principal(member) if {
	is_object(member)
	count(member) > 0
	standard.is_for_the_principal({"principal": member})
}
