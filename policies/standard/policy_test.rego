package policy_test

import data.policy

call(tool) := {"action": "call", "call": {"method": "tools/call", "tool": tool}, "principal": {"kind": "access_token", "id": "t1"}, "server": {"id": "s1"}}

scoped(scopes, request) := json.patch(request, [{"op": "add", "path": "/principal/scopes", "value": scopes}])

granted(grants, request) := json.patch(request, [{"op": "add", "path": "/server/grants", "value": grants}])

test_allow_a_tool_without_scopes if policy.allow with input as call("echo")

test_deny_a_tool_with_no_scope_at_all if {
	not policy.allow with input as scoped([], call("echo"))
}

test_allow_the_tool_that_a_scope_names if policy.allow with input as scoped(["tools:call:echo"], call("echo"))

test_deny_another_tool_than_a_scope_names if {
	denied := policy.deny with input as scoped(["tools:call:echo"], call("add"))
	{d.code | some d in denied} == {"scope_missing"}
}

test_deny_everybody_whom_no_grant_names if {
	grants := [{"principal": {"id": "t2"}, "tools": ["*"]}]
	denied := policy.deny with input as granted(grants, call("echo"))
	{d.code | some d in denied} == {"tool_not_granted"}
}

test_allow_what_a_grant_covers if {
	grants := [{"principal": {"id": "t1"}, "tools": ["ec*"]}]
	policy.allow with input as granted(grants, call("echo"))
}

test_deny_what_no_grant_covers if {
	grants := [{"principal": {}, "tools": ["add"]}]
	not policy.allow with input as granted(grants, call("echo"))
}
