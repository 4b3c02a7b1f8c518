# METADATA
# title: Tests of the limited arguments
# description: Every way out of a directory or a repository that is known, and a few ways in.
package policy_test

import data.policy

calls(tool, arguments) := {
	"action": "call",
	"call": {"method": "tools/call", "tool": tool, "arguments": arguments},
	"principal": {"kind": "access_token", "id": "t1"},
	"server": {"id": "s1", "name": "files"},
}

reads(path) := calls("read_file", {"path": path})

resource(address) := json.patch(reads(""), [{"op": "replace", "path": "/call", "value": {"method": "resources/read", "resource": address}}])

method(name) := json.patch(reads(""), [{"op": "replace", "path": "/call", "value": {"method": name}}])

item(call) := json.patch(reads(""), [
	{"op": "replace", "path": "/call", "value": call},
	{"op": "replace", "path": "/action", "value": "list_item"},
])

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

test_allow_paths_at_and_below_a_directory if {
	every path in ["/srv/projects/website", "/srv/projects/website/", "/srv/projects/website/a.txt", "/srv/shared/a b/.git/..config", "/srv/shared/x..y"] {
		allowed(reads(path))
	}
}

test_allow_every_path_inside if allowed(calls("move_file", {"source": "/srv/shared/a", "destination": "/srv/shared/b"}))

test_allow_other_arguments_that_are_known if allowed(calls("read_file", {"path": "/srv/shared/a", "head": 10}))

test_allow_repositories_of_the_list if {
	allowed(calls("list_issues", {"owner": "acme", "repo": "website"}))
	allowed(calls("search_code", {"repository": "acme/docs", "query": "../.."}))
}

test_allow_items_whose_arguments_come_later if {
	every tool in ["read_file", "list_issues"] {
		allowed(item({"method": "tools/call", "tool": tool}))
	}
}

test_allow_opening_the_stream if allowed({"action": "open_stream", "principal": {"kind": "access_token", "id": "t1"}, "server": {"id": "s1", "name": "files"}})

test_allow_files_as_resources if {
	allowed(resource("file:///srv/shared/a.txt"))
	allowed(item({"method": "resources/read", "resource": "file:///srv/shared/a.txt"}))
}

test_allow_lists if allowed(method("tools/list"))

test_deny_paths_outside if {
	every path in ["/etc/passwd", "/srv", "/srv/", "/", "/srv/projects", "/srv/projects/website2", "/srv/projects/website.bak/a", "/srv/share"] {
		denied({"path_outside"}, reads(path))
	}
}

test_deny_dots if {
	every path in [
		"/srv/shared/../../etc/passwd", "/srv/shared/..", "/srv/shared/../shared/a", "/srv/shared/./a",
		"/srv/shared/.. /a", "/srv/shared/. ./a", "/srv/shared/.../a", "/srv/shared/ /a",
	] {
		denied({"path_outside"}, reads(path))
	}
}

test_deny_relative_paths if {
	every path in ["a.txt", "../srv/shared/a", "./srv/shared/a", "srv/shared/a", "~/a", "", " /srv/shared/a", "C:/srv/shared/a", "file:///srv/shared/a"] {
		denied({"path_outside"}, reads(path))
	}
}

test_deny_slashes_of_every_kind if {
	every path in ["//srv/shared/a", "/srv//shared/a", "/srv/shared//a", "/srv/shared/a//", "/srv/shared\\..\\..\\etc", "\\srv\\shared\\a", "/srv/shared/a\\b", "/srv/shared\u2215a", "/srv/shared/\uff0e\uff0e/a"] {
		denied({"path_outside"}, reads(path))
	}
}

test_deny_what_a_server_may_decode if {
	every path in ["/srv/shared/%2e%2e/%2e%2e/etc", "/srv/shared/%2E%2E/a", "/srv/shared%2fa", "/srv/shared/..%00/a", "/srv/shared/&#46;&#46;/a", "/srv/shared/$HOME", "/srv/shared/`id`", "/srv/shared/*"] {
		denied({"path_outside"}, reads(path))
	}
}

test_deny_quotes_and_lines if {
	every path in ["/srv/shared/a\n", "/srv/shared/a\n/etc/passwd", "/etc/passwd\n/srv/shared/a", "/srv/shared/a\u0000", "/srv/shared/a\r", "/srv/shared/\"", "/srv/shared/'", "/srv/shared/a\u202etxt"] {
		denied({"path_outside"}, reads(path))
	}
}

test_deny_a_directory_in_another_case if denied({"path_outside"}, reads("/SRV/Shared/a"))

test_deny_a_path_that_is_too_long if denied({"path_outside"}, reads(concat("", ["/srv/shared/", concat("", [c | some _ in numbers.range(1, 4096); c := "a"])])))

test_deny_paths_of_a_wrong_type if {
	every path in [null, true, 7, ["/srv/shared/a"], {"path": "/srv/shared/a"}, []] {
		denied({"path_outside"}, reads(path))
	}
}

test_deny_a_path_that_is_missing if {
	denied({"path_outside"}, calls("read_file", {}))
	denied({"path_outside"}, calls("move_file", {"source": "/srv/shared/a"}))
	denied({"path_outside"}, without("call/arguments", calls("read_file", {})))
}

test_deny_a_key_in_another_case if {
	denied({"argument_unknown", "path_outside"}, calls("read_file", {"Path": "/srv/shared/a"}))
	denied({"argument_unknown"}, calls("read_file", {"path": "/srv/shared/a", "PATH": "/etc/passwd"}))
}

test_deny_keys_that_only_look_known if {
	every name in ["path ", " path", "path\n", "path\u0000", "p\u0430th", "paths", "\"path\"", ""] {
		denied({"argument_unknown"}, calls("read_file", {"path": "/srv/shared/a", name: "/etc/passwd"}))
	}
}

test_deny_one_path_of_two_outside if denied({"path_outside"}, calls("move_file", {"source": "/srv/shared/a", "destination": "/etc/cron.d/a"}))

test_deny_arguments_that_are_no_object if {
	every arguments in [null, "path", 7, true, [], ["/srv/shared/a"], [["path", "/srv/shared/a"]]] {
		denied({"argument_unknown", "path_outside"}, calls("read_file", arguments))
	}
}

test_deny_repositories_that_are_not_listed if {
	every parts in [["acme", "secret"], ["Acme", "website"], ["acme", "Website"], ["acme/website", ""], ["", "acme/website"], ["acme", "website/"], ["acme", "website\n"], ["acme", "website/../secret"], ["acme", "*"]] {
		denied({"repository_not_listed"}, calls("list_issues", {"owner": parts[0], "repo": parts[1]}))
	}
}

test_deny_repositories_of_a_wrong_type if {
	every arguments in [{}, {"owner": "acme"}, {"repo": "acme/website"}, {"owner": "acme/website"}, {"owner": ["acme"], "repo": "website"}, {"owner": null, "repo": "acme/website"}] {
		denied({"repository_not_listed"}, calls("list_issues", arguments))
	}
}

test_deny_tools_that_are_not_listed if {
	every tool in ["delete_file", "Read_file", "read_file ", "read_file\n", "", "\"", "read_*"] {
		denied({"tool_not_listed"}, calls(tool, {"path": "/srv/shared/a"}))
	}
}

test_deny_items_of_tools_that_are_not_listed if denied({"tool_not_listed"}, item({"method": "tools/call", "tool": "delete_file"}))

test_deny_a_call_without_a_tool if not allowed(without("call/tool", calls("read_file", {})))

test_deny_resources_elsewhere if {
	every address in [
		"file:///etc/passwd", "file:///srv/shared/../../etc/passwd", "file:///srv/shared/%2e%2e/a", "file://host/srv/shared/a", "file:/srv/shared/a",
		"FILE:///srv/shared/a", "https://example.com/srv/shared/a", "/srv/shared/a", "file:///srv/shared/a?x", "file:///srv/shared/a#x", "file:////srv/shared/a", "",
	] {
		denied({"method_not_listed"}, resource(address))
	}
}

test_deny_resource_templates if denied({"method_not_listed"}, item({"method": "resources/read", "resource_template": "file:///srv/shared/{+path}"}))

test_deny_other_methods_with_the_same_keys if {
	every call in [{"method": "tools/run", "tool": "read_file", "arguments": {"path": "/srv/shared/a"}}, {"method": "resources/write", "resource": "file:///srv/shared/a"}] {
		denied({"method_not_listed"}, json.patch(method(""), [{"op": "replace", "path": "/call", "value": call}]))
	}
}

test_deny_an_action_that_nobody_knows if {
	every request in [reads("/srv/shared/a"), item({"method": "tools/call", "tool": "read_file"})] {
		denied(set(), json.patch(request, [{"op": "replace", "path": "/action", "value": "erase"}]))
	}
}

test_deny_methods_that_are_not_listed if {
	every name in ["prompts/get", "completion/complete", "tasks/cancel", "notifications/x", "Tools/List", ""] {
		denied({"method_not_listed"}, method(name))
	}
}

test_deny_what_the_scopes_do_not_allow if {
	request := json.patch(reads("/srv/shared/a"), [{"op": "add", "path": "/principal/scopes", "value": ["mcp:connect"]}])
	denied({"scope_missing"}, request)
	needed := policy.scopes_needed with input as request
	"tools:call:read_file" in needed
}

# What goes live with this policy is tested, too: a directory that is written
# otherwise would let nothing in, or too much.
test_deny_nothing_by_a_typing_error_in_the_data if {
	every directory in data.directories {
		regex.match(`^(/[A-Za-z0-9_@+=,.-]+)+$`, directory)
	}
	every rule in data.tools {
		object.keys(rule) - {"paths", "repository", "others"} == set()
		every names in rule {
			is_array(names)
			every name in names {
				is_string(name)
			}
		}
	}
}
