# METADATA
# title: Office hours
# description: |
#   Servers are open during the hours of data.json, in its time zone. In an
#   emergency the label hours=always opens one server. A stream that is open
#   when the hours end is ended within a minute. Whatever the standard policy
#   denies stays denied.
package policy

import data.policy.standard

default allow := false

allow if {
	standard.allow
	is_open
}

deny contains denial if some denial in standard.deny

deny contains {"code": "outside_office_hours", "message": message} if {
	not is_open
	message := sprintf("this server is open on %s from %d:00 to %d:00 (%s); try again then, or ask the server's owner to open it now", [
		concat(", ", data.office.days), data.office.from, data.office.until, data.office.zone,
	])
}

scopes_needed contains scope if some scope in standard.scopes_needed

# Hours are those of the zone, also when its clocks change. Without a time
# nothing is open.
is_open if {
	now := [input.time, data.office.zone]
	time.weekday(now) in data.office.days
	[hour, _, _] := time.clock(now)
	hour >= data.office.from
	hour < data.office.until
}

is_open if input.server.labels.hours == "always"

# A certificate that could not be renewed at night would be lost by the morning.
is_open if input.action == "identity.rotate"
