# METADATA
# title: Tests of the tools by team
# description: Two teams of the tests' own, and people who are in none.
package policy_test

import data.policy

teams := {
	"payments": {"members": [{"id": "p1"}, {"client": "bot", "issuer": "https://id.example"}], "tools": {"ledger": ["*"], "tickets": ["search", "show_*"]}},
	"support": {"members": [{"id": "s1"}], "tools": {"tickets": ["*"]}},
	"odd": {"members": [{}, "s2", ["s2"], {"id": ["s2"]}, null], "tools": {"ledger": ["*"]}},
	"broken": {"members": [{"id": "b1"}], "tools": {"ledger": "*", "tickets": [7, {"*": "*"}, ["*"]]}},
}

calls(who, kind, tool) := {
	"action": "call",
	"call": {"method": "tools/call", "tool": tool},
	"principal": {"kind": "access_token", "id": who},
	"server": {"id": "1", "name": "one", "labels": {"kind": kind}},
}

lists(who, kind) := json.patch(calls(who, kind, ""), [{"op": "replace", "path": "/call", "value": {"method": "tools/list"}}])

as_item(request) := json.patch(request, [{"op": "replace", "path": "/action", "value": "list_item"}])

without(path, request) := json.remove(request, [path])

# Both of them say it: allow, which is closed, and deny, which says why.
allowed(request) if {
	policy.allow with input as request with data.teams as teams
	codes(request) == set()
}

denied(reasons, request) if {
	not policy.allow with input as request with data.teams as teams
	codes(request) == reasons
}

codes(request) := {one.code | some one in found} if found := policy.deny with input as request with data.teams as teams

test_allow_any_tool_of_the_own_kind if allowed(calls("p1", "ledger", "pay"))

test_allow_what_a_pattern_covers if allowed(calls("p1", "tickets", "show_comments"))

test_allow_another_team_the_same_server if allowed(calls("s1", "tickets", "close"))

test_allow_a_client_of_its_issuer if {
	who := {"kind": "oauth", "id": "x", "client": "bot", "issuer": "https://id.example"}
	allowed(json.patch(calls("x", "ledger", "pay"), [{"op": "replace", "path": "/principal", "value": who}]))
}

test_allow_a_member_to_list if allowed(lists("p1", "tickets"))

test_allow_rotating_without_a_team if allowed({"action": "identity.rotate", "principal": {"kind": "mtls", "id": "x"}, "server": {"id": "1", "name": "one"}})

test_deny_a_tool_of_another_team if denied({"tool_of_another_team"}, calls("p1", "tickets", "close"))

test_deny_the_item_of_another_team if denied({"tool_of_another_team"}, as_item(calls("p1", "tickets", "close")))

test_deny_a_kind_of_another_team if denied({"no_team"}, calls("s1", "ledger", "pay"))

test_deny_lists_to_who_is_in_no_team if denied({"no_team"}, lists("x", "tickets"))

test_deny_names_that_only_look_like_a_member if {
	every who in ["P1", "p1 ", " p1", "p1\n", "p", "*", "", "\"p1\"", "p1\u0000"] {
		denied({"no_team"}, calls(who, "ledger", "pay"))
	}
}

test_deny_tools_that_only_look_like_a_teams if {
	every tool in ["Search", "search ", "search\n", "SHOW_x", "show", "\"search\"", "xsearch", "*", ""] {
		denied({"tool_of_another_team"}, calls("p1", "tickets", tool))
	}
}

test_deny_a_member_that_is_no_object_of_parts if denied({"no_team"}, calls("s2", "ledger", "pay"))

test_deny_tools_of_a_wrong_type if {
	denied({"no_team"}, calls("b1", "ledger", "pay"))
	denied({"no_team"}, calls("b1", "tickets", "close"))
}

test_deny_a_client_of_another_issuer if {
	every who in [{"kind": "oauth", "id": "x", "client": "bot"}, {"kind": "oauth", "id": "x", "client": "bot", "issuer": "https://other.example"}] {
		denied({"no_team"}, json.patch(calls("x", "ledger", "pay"), [{"op": "replace", "path": "/principal", "value": who}]))
	}
}

test_deny_a_server_without_labels if denied({"no_team"}, without("server/labels", calls("p1", "ledger", "pay")))

test_deny_a_server_of_an_unknown_kind if denied({"no_team"}, calls("p1", "Ledger", "pay"))

test_deny_an_input_without_a_server if denied({"no_team"}, without("server", calls("p1", "ledger", "pay")))

test_deny_a_call_without_a_tool if not allowed(without("call/tool", calls("p1", "tickets", "x")))

test_deny_what_the_scopes_do_not_allow if {
	request := json.patch(calls("p1", "ledger", "pay"), [{"op": "add", "path": "/principal/scopes", "value": ["tools:call:refund"]}])
	denied({"scope_missing"}, request)
	needed := policy.scopes_needed with input as request with data.teams as teams
	"tools:call:pay" in needed
}

test_deny_what_no_grant_allows if {
	request := json.patch(calls("p1", "ledger", "pay"), [{"op": "add", "path": "/server/grants", "value": [{"principal": {"id": "s1"}, "tools": ["*"]}]}])
	denied({"tool_not_granted"}, request)
}

# The team file that goes live with this policy is tested, too.
test_deny_everybody_else_by_the_real_data if {
	every name, team in data.teams {
		is_string(name)
		every member in team.members {
			is_object(member)
			count(member) > 0
		}
		every list in team.tools {
			is_array(list)
			every pattern in list {
				is_string(pattern)
			}
		}
	}
}
