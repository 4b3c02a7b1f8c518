# METADATA
# title: Rate limits for expensive tools
# description: |
#   Each principal may call each of the tools of data.json only so often. The
#   limits hold in each replica of the gateway. Whatever the standard policy
#   denies stays denied.
package policy

import data.policy.standard

default allow := false

allow if {
	standard.allow
	not is_unclear
}

deny contains denial if some denial in standard.deny

deny contains {"code": "limit_unclear", "message": message} if {
	is_unclear
	message := sprintf("no limit can be applied to the tool %q as it is written; take its name exactly as tools/list shows it", [input.call.tool])
}

scopes_needed contains scope if some scope in standard.scopes_needed

# Over it, the gateway answers with rate_limited and says when to come back.
limits contains {"by": ["principal", "tool"], "rate": limit_of_the_tool.rate, "burst": limit_of_the_tool.burst} if {
	input.action == "call"
	is_limit(limit_of_the_tool)
}

limit_of_the_tool := data.expensive[input.call.tool] if input.call.method == "tools/call"

# A server may take another spelling for the same tool, the limit would not.
is_unclear if {
	input.call.method == "tools/call"
	not limit_of_the_tool
	some tool, _ in data.expensive
	letters(tool) == letters(input.call.tool)
}

# A limit that cannot be applied is no reason to have none.
is_unclear if {
	limit_of_the_tool
	not is_limit(limit_of_the_tool)
}

letters(name) := regex.replace(lower(name), `[^a-z0-9]`, "")

is_limit(limit) if {
	is_number(limit.rate)
	limit.rate > 0
	limit.rate <= 1000000
	limit.burst in numbers.range(1, 1000)
}
