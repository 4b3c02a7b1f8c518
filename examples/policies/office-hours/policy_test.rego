# METADATA
# title: Tests of the office hours
# description: Moments around the edges of the day, the week and the change of the clocks.
package policy_test

import data.policy

office := {"zone": "Europe/Berlin", "days": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"], "from": 8, "until": 18}

# A moment like 2026-06-01T08:00:00+02:00.
at(moment) := {
	"action": "call",
	"call": {"method": "tools/call", "tool": "echo"},
	"principal": {"kind": "access_token", "id": "t1"},
	"server": {"id": "s1", "name": "one"},
	"time": time.parse_rfc3339_ns(moment),
}

labelled(labels, request) := json.patch(request, [{"op": "add", "path": "/server/labels", "value": labels}])

asks(action, request) := json.patch(request, [{"op": "replace", "path": "/action", "value": action}])

# Both of them say it: allow, which is closed, and deny, which says why.
allowed(request) if {
	policy.allow with input as request with data.office as office
	codes(request) == set()
}

denied(reasons, request) if {
	not policy.allow with input as request with data.office as office
	codes(request) == reasons
}

codes(request) := {one.code | some one in found} if found := policy.deny with input as request with data.office as office

test_allow_the_first_and_the_last_moment if {
	allowed(at("2026-06-01T08:00:00+02:00"))
	allowed(at("2026-06-05T17:59:59.999999999+02:00"))
}

test_allow_by_the_clock_of_the_zone_in_winter_and_summer if {
	allowed(at("2026-01-05T07:00:00Z"))
	allowed(at("2026-06-01T06:00:00Z"))
}

test_allow_a_server_that_is_always_open if allowed(labelled({"hours": "always"}, at("2026-06-06T03:00:00Z")))

test_allow_renewing_at_night if allowed(asks("identity.rotate", at("2026-06-06T03:00:00Z")))

test_allow_streams_and_items_while_it_is_open if {
	every action in ["open_stream", "list_item"] {
		allowed(asks(action, at("2026-06-01T12:00:00+02:00")))
	}
}

test_deny_the_moments_beside if {
	every moment in ["2026-06-01T07:59:59.999999999+02:00", "2026-06-01T18:00:00+02:00", "2026-06-01T00:00:00+02:00"] {
		denied({"outside_office_hours"}, at(moment))
	}
}

test_deny_the_clock_of_another_zone if {
	denied({"outside_office_hours"}, at("2026-06-01T17:00:00Z"))
	denied({"outside_office_hours"}, at("2026-01-05T06:30:00Z"))
}

test_deny_the_weekend if {
	every moment in ["2026-06-06T12:00:00+02:00", "2026-06-07T12:00:00+02:00", "2026-06-07T22:00:00Z"] {
		denied({"outside_office_hours"}, at(moment))
	}
}

test_deny_the_days_when_the_clocks_change if {
	denied({"outside_office_hours"}, at("2026-03-29T08:30:00+02:00"))
	denied({"outside_office_hours"}, at("2026-10-25T08:30:00+01:00"))
}

test_deny_streams_and_items_after_hours if {
	every action in ["open_stream", "list_item", "identity.bootstrap"] {
		denied({"outside_office_hours"}, asks(action, at("2026-06-01T20:00:00+02:00")))
	}
}

test_deny_an_input_without_a_time if denied({"outside_office_hours"}, json.remove(at("2026-06-01T12:00:00+02:00"), ["time"]))

test_deny_labels_that_only_look_right if {
	every labels in [{"hours": "Always"}, {"Hours": "always"}, {"hours": "always "}, {"hours": "always\n"}, {"hours": ""}, {"hours": "office"}, {"hours": "\"always\""}] {
		denied({"outside_office_hours"}, labelled(labels, at("2026-06-06T03:00:00Z")))
	}
}

test_deny_what_the_scopes_do_not_allow if {
	request := json.patch(at("2026-06-01T12:00:00+02:00"), [{"op": "add", "path": "/principal/scopes", "value": ["mcp:connect"]}])
	denied({"scope_missing"}, request)
	needed := policy.scopes_needed with input as request
	"tools:call:echo" in needed
}

test_deny_what_no_grant_allows if {
	request := json.patch(at("2026-06-01T12:00:00+02:00"), [{"op": "add", "path": "/server/grants", "value": []}])
	denied({"tool_not_granted"}, request)
}

# What goes live with this policy is tested, too: a zone that does not exist is
# an error at each request, and "18" is greater than every number.
test_deny_nothing_by_a_typing_error_in_the_data if {
	is_string(time.weekday([0, data.office.zone]))
	every hour in [data.office.from, data.office.until] {
		hour in numbers.range(0, 24)
	}
	every day in data.office.days {
		day in {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
	}
}
