# METADATA
# title: Read-only agents
# description: |
#   Tools that only read may be called, lists, prompts and resources may be
#   read, and nothing else. Which tools those are says the server's own data
#   (read_only_tools) or, by the server's label kind, data.json. Whatever the
#   standard policy denies stays denied.
package policy

import data.policy.standard

default allow := false

allow if {
	standard.allow
	only_reads
}

deny contains denial if some denial in standard.deny

deny contains {"code": "tool_not_read_only", "message": message} if {
	uses_a_tool
	not only_reads
	message := sprintf("the tool %q is not marked as read-only, and only such tools may be called here; take one that reads, or ask the server's owner to mark it", [input.call.tool])
}

deny contains {"code": "method_not_read_only", "message": message} if {
	not uses_a_tool
	not only_reads
	message := "only lists, prompts, resources and read-only tools may be used here; this method is none of them"
}

scopes_needed contains scope if some scope in standard.scopes_needed

# No message of a client is in these.
only_reads if input.action in {"open_stream", "identity.bootstrap", "identity.rotate"}

only_reads if {
	is_message
	input.call.method in {
		"initialize",
		"tools/list", "prompts/list", "prompts/get",
		"resources/list", "resources/templates/list", "resources/read",
		"resources/subscribe", "resources/unsubscribe", "subscriptions/listen",
		"completion/complete", "logging/setLevel",
		"tasks/list", "tasks/get", "tasks/result",
	}
}

only_reads if {
	is_message
	uses_a_tool
	some pattern in read_only_tools
	standard.covers(pattern, input.call.tool)
}

# A list_item asks what a call would: here the name is all there is to judge.
is_message if input.action in {"call", "list_item"}

uses_a_tool if input.call.method == "tools/call"

# Names; with * at its end, whatever begins so. A name is what the server's
# author chose: use patterns only for servers whose naming you trust.
read_only_tools contains pattern if {
	some pattern in input.server.data.read_only_tools
	is_string(pattern)
}

read_only_tools contains pattern if {
	some pattern in data.read_only_tools[input.server.labels.kind]
	is_string(pattern)
}
