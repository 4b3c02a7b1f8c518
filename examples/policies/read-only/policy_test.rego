# METADATA
# title: Tests of the read-only agents
# description: What only reads passes; whatever is not known to, does not.
package policy_test

import data.policy

asked(action, method) := {
	"action": action,
	"call": {"method": method},
	"principal": {"kind": "access_token", "id": "t1"},
	"server": {"id": "s1", "name": "repositories", "labels": {"kind": "github"}},
}

with_tool(tool) := json.patch(asked("call", "tools/call"), [{"op": "add", "path": "/call/tool", "value": tool}])

marked(tools, tool) := json.patch(with_tool(tool), [{"op": "add", "path": "/server/data", "value": {"read_only_tools": tools}}])

as_item(request) := json.patch(request, [{"op": "replace", "path": "/action", "value": "list_item"}])

scoped(scopes, request) := json.patch(request, [{"op": "add", "path": "/principal/scopes", "value": scopes}])

without(path, request) := json.remove(request, [path])

# Both of them say it: allow, which is closed, and deny, which says why.
allowed(request) if {
	policy.allow with input as request
	codes(request) == set()
}

denied(reasons, request) if {
	not policy.allow with input as request
	codes(request) == reasons
}

codes(request) := {one.code | some one in found} if found := policy.deny with input as request

test_allow_a_tool_of_the_kind if allowed(with_tool("get_issue"))

test_allow_a_tool_that_the_server_marks if allowed(marked(["show"], "show"))

test_allow_reading_methods if {
	every method in ["initialize", "tools/list", "prompts/get", "resources/read"] {
		allowed(asked("call", method))
	}
}

test_allow_the_item_of_a_tool_that_reads if allowed(as_item(with_tool("get_issue")))

test_allow_opening_the_stream if allowed(without("call", asked("open_stream", "")))

test_deny_a_tool_that_nobody_marked if denied({"tool_not_read_only"}, with_tool("create_issue"))

test_deny_the_item_of_a_tool_that_nobody_marked if denied({"tool_not_read_only"}, as_item(with_tool("create_issue")))

test_deny_names_that_only_look_marked if {
	every tool in ["Get_issue", "GET_ISSUE", " get_issue", "\nget_issue", "get", "get-issue", "get*", "*", "", "x\"get_issue", "\u200bget_issue"] {
		denied({"tool_not_read_only"}, with_tool(tool))
	}
}

test_deny_a_server_without_a_kind if denied({"tool_not_read_only"}, without("server/labels", with_tool("get_issue")))

test_deny_a_server_of_a_kind_that_has_no_list if {
	request := json.patch(with_tool("get_issue"), [{"op": "replace", "path": "/server/labels/kind", "value": "other"}])
	denied({"tool_not_read_only"}, request)
}

test_deny_a_kind_in_another_case if {
	request := json.patch(with_tool("get_issue"), [{"op": "replace", "path": "/server/labels", "value": {"Kind": "github"}}])
	denied({"tool_not_read_only"}, request)
}

test_deny_marks_of_a_wrong_type if {
	every tools in ["show", {"show": true}, [["show"]], [{"name": "show"}], [7], null, true, 7] {
		denied({"tool_not_read_only"}, marked(tools, "show"))
	}
}

test_deny_a_call_without_a_tool if not allowed(asked("call", "tools/call"))

test_deny_methods_that_change_things if {
	every method in ["tasks/cancel", "tasks/update", "notifications/message", "resources/write", "", "Tools/List", "tools/list "] {
		denied({"method_not_read_only"}, asked("call", method))
	}
}

test_deny_an_action_that_nobody_knows if {
	denied({"method_not_read_only"}, asked("erase", "tools/list"))
	denied({"tool_not_read_only"}, json.patch(with_tool("get_issue"), [{"op": "replace", "path": "/action", "value": "erase"}]))
}

test_deny_another_method_with_a_tool if {
	denied({"method_not_read_only"}, json.patch(with_tool("get_issue"), [{"op": "replace", "path": "/call/method", "value": "tools/run"}]))
}

test_deny_an_input_without_an_action if denied({"method_not_read_only"}, without("action", asked("call", "tools/list")))

test_deny_what_the_scopes_do_not_allow if {
	request := scoped(["mcp:connect"], with_tool("get_issue"))
	denied({"scope_missing"}, request)
	needed := policy.scopes_needed with input as request
	"tools:call:get_issue" in needed
}

test_deny_what_no_grant_allows if {
	request := json.patch(with_tool("get_issue"), [{"op": "add", "path": "/server/grants", "value": []}])
	denied({"tool_not_granted"}, request)
}
