# METADATA
# title: Tests of what is hidden
# description: For who is not in the team there is nothing there that is not shown to all.
package policy_test

import data.policy

teams := {
	"payroll": {"members": [{"id": "p1"}, {"client": "bot", "issuer": "https://id.example"}], "shown_to_all": ["list_holidays", "public_*"]},
	"odd": {"members": [{}, "x", ["x"], null], "shown_to_all": [7, {"*": "*"}, ["*"]]},
	"text": {"members": "x", "shown_to_all": "*"},
}

calls(who, tool) := {
	"action": "call",
	"call": {"method": "tools/call", "tool": tool},
	"principal": {"kind": "access_token", "id": who},
	"server": {"id": "s1", "name": "people", "labels": {"team": "payroll"}},
}

asks(who, call) := json.patch(calls(who, ""), [{"op": "replace", "path": "/call", "value": call}])

labelled(labels, request) := json.patch(request, [{"op": "replace", "path": "/server/labels", "value": labels}])

as_item(request) := json.patch(request, [{"op": "replace", "path": "/action", "value": "list_item"}])

# Both of them say it: allow, which is closed, and deny, which says why.
allowed(request) if {
	policy.allow with input as request with data.teams as teams
	codes(request) == set()
	not policy.hide with input as request with data.teams as teams
}

hidden(request) if {
	not policy.allow with input as request with data.teams as teams
	"hidden_from_others" in codes(request)
	policy.hide with input as request with data.teams as teams
}

denied(reasons, request) if {
	not policy.allow with input as request with data.teams as teams
	codes(request) == reasons
	not policy.hide with input as request with data.teams as teams
}

codes(request) := {one.code | some one in found} if found := policy.deny with input as request with data.teams as teams

test_allow_the_team_everything if {
	allowed(calls("p1", "pay"))
	allowed(as_item(calls("p1", "pay")))
	allowed(asks("p1", {"method": "prompts/get", "prompt": "letter"}))
}

test_allow_everybody_what_is_shown if {
	allowed(calls("x", "list_holidays"))
	allowed(as_item(calls("x", "public_calendar")))
}

test_allow_everybody_to_list if {
	every method in ["initialize", "tools/list", "prompts/list"] {
		allowed(asks("x", {"method": method}))
	}
}

test_allow_everybody_to_open_the_stream if {
	allowed(json.patch(json.remove(calls("x", ""), ["call"]), [{"op": "replace", "path": "/action", "value": "open_stream"}]))
}

test_allow_everybody_a_server_without_a_team if allowed(json.remove(calls("x", "pay"), ["server/labels"]))

test_deny_and_hide_tools_from_others if {
	hidden(calls("x", "pay"))
	hidden(as_item(calls("x", "pay")))
}

test_deny_and_hide_tools_that_do_not_exist if hidden(calls("x", "no_such_tool"))

test_deny_and_hide_other_spellings if {
	every tool in ["List_holidays", "list_holidays ", "list_holidays\n", "LIST_HOLIDAYS", "public", "Public_x", "*", "", "\"list_holidays\"", "xlist_holidays"] {
		hidden(calls("x", tool))
	}
}

test_deny_and_hide_from_who_only_looks_like_a_member if {
	every who in ["P1", "p1 ", "p1\n", "p", "*", "", "\"p1\""] {
		hidden(calls(who, "pay"))
	}
}

test_deny_and_hide_prompts_and_resources if {
	every call in [{"method": "prompts/get", "prompt": "letter"}, {"method": "resources/read", "resource": "payroll://all"}, {"method": "resources/read", "resource_template": "payroll://{who}"}] {
		hidden(asks("x", call))
		hidden(as_item(asks("x", call)))
	}
}

test_deny_and_hide_methods_that_nobody_knows if {
	every method in ["tasks/get", "completion/complete", "notifications/x", "Tools/List", ""] {
		hidden(asks("x", {"method": method}))
	}
}

test_deny_and_hide_a_client_of_another_issuer if {
	every who in [{"kind": "oauth", "id": "x", "client": "bot"}, {"kind": "oauth", "id": "x", "client": "bot", "issuer": "https://other.example"}] {
		hidden(json.patch(calls("x", "pay"), [{"op": "replace", "path": "/principal", "value": who}]))
	}
}

test_deny_and_hide_servers_of_a_team_that_nobody_wrote_down if {
	every team in ["unknown", "Payroll", "", "payroll ", "odd", "text"] {
		hidden(labelled({"team": team}, calls("x", "pay")))
	}
}

test_deny_and_hide_another_method_with_a_tool if hidden(asks("x", {"method": "tools/run", "tool": "list_holidays"}))

test_deny_and_hide_a_call_without_a_tool if hidden(asks("x", {"method": "tools/call"}))

test_deny_openly_what_only_the_scopes_forbid if {
	request := json.patch(calls("p1", "pay"), [{"op": "add", "path": "/principal/scopes", "value": ["mcp:connect"]}])
	denied({"scope_missing"}, request)
	needed := policy.scopes_needed with input as request with data.teams as teams
	"tools:call:pay" in needed
}

test_deny_and_hide_also_without_scopes if {
	request := json.patch(calls("x", "pay"), [{"op": "add", "path": "/principal/scopes", "value": ["mcp:connect"]}])
	hidden(request)
}
