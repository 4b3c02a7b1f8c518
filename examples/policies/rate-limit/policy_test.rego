# METADATA
# title: Tests of the rate limits
# description: |
#   What is limited, and by what; that limits do bite is the gateway's part. A
#   name that could be an expensive tool's in disguise is denied.
package policy_test

import data.policy

expensive := {
	"draw": {"rate": 0.05, "burst": 2},
	"none": {},
	"slow": {"rate": 0, "burst": 2},
	"text": {"rate": "1", "burst": 2},
	"half": {"rate": 1, "burst": 0.5},
	"fast": {"rate": 1000001, "burst": 1},
	"list": [1, 2],
}

calls(tool) := {
	"action": "call",
	"call": {"method": "tools/call", "tool": tool},
	"principal": {"kind": "access_token", "id": "t1"},
	"server": {"id": "s1", "name": "one"},
}

as_item(request) := json.patch(request, [{"op": "replace", "path": "/action", "value": "list_item"}])

# Both of them say it: allow, which is closed, and deny, which says why.
allowed(request) if {
	policy.allow with input as request with data.expensive as expensive
	codes(request) == set()
}

denied(reasons, request) if {
	not policy.allow with input as request with data.expensive as expensive
	codes(request) == reasons
}

codes(request) := {one.code | some one in found} if found := policy.deny with input as request with data.expensive as expensive

limits(request) := found if found := policy.limits with input as request with data.expensive as expensive

test_allow_an_expensive_tool_within_its_limit if {
	allowed(calls("draw"))
	limits(calls("draw")) == {{"by": ["principal", "tool"], "rate": 0.05, "burst": 2}}
}

test_allow_other_tools_without_a_limit if {
	allowed(calls("echo"))
	limits(calls("echo")) == set()
}

test_allow_the_item_without_counting_it if {
	allowed(as_item(calls("draw")))
	limits(as_item(calls("draw"))) == set()
}

test_allow_another_method_with_a_tool_without_a_limit if {
	every tool in ["draw", "Draw"] {
		request := json.patch(calls(tool), [{"op": "replace", "path": "/call/method", "value": "tools/show"}])
		allowed(request)
		limits(request) == set()
	}
}

test_allow_lists_without_a_limit if {
	request := json.patch(calls(""), [{"op": "replace", "path": "/call", "value": {"method": "tools/list"}}])
	allowed(request)
	limits(request) == set()
}

test_deny_an_expensive_tool_in_another_spelling if {
	every tool in ["Draw", "DRAW", "draw ", " draw", "draw\n", "d-raw", "d_r_a_w", "\"draw\"", "draw\u0000", "dr\u200baw"] {
		denied({"limit_unclear"}, calls(tool))
	}
}

test_deny_the_item_in_another_spelling if denied({"limit_unclear"}, as_item(calls("Draw")))

test_deny_tools_whose_limit_is_none if {
	every tool in ["none", "slow", "text", "half", "fast", "list"] {
		denied({"limit_unclear"}, calls(tool))
		limits(calls(tool)) == set()
	}
}

test_deny_what_the_scopes_do_not_allow if {
	request := json.patch(calls("draw"), [{"op": "add", "path": "/principal/scopes", "value": ["tools:call:echo"]}])
	denied({"scope_missing"}, request)
	needed := policy.scopes_needed with input as request with data.expensive as expensive
	"tools:call:draw" in needed
}

test_deny_what_no_grant_allows if {
	request := json.patch(calls("draw"), [{"op": "add", "path": "/server/grants", "value": []}])
	denied({"tool_not_granted"}, request)
}

test_deny_a_narrowed_credential_everything_else if {
	request := json.patch(calls("echo"), [{"op": "add", "path": "/principal/scopes", "value": []}])
	denied({"scope_missing"}, request)
}

# What goes live with this policy is tested, too.
test_deny_no_tool_by_a_typing_error_in_the_data if {
	every limit in data.expensive {
		policy.is_limit(limit)
	}
}
