# METADATA
# title: Arguments limited to directories and repositories
# description: |
#   Only the tools of data.json may be called, with only the arguments named
#   there: paths at or below the directories, repositories of the list, and
#   others, which may be anything. Whatever is not understood is denied, and
#   whatever the standard policy denies stays denied.
package policy

import data.policy.standard

default allow := false

allow if {
	standard.allow
	stays_inside
}

deny contains denial if some denial in standard.deny

deny contains {"code": "tool_not_listed", "message": message} if {
	uses_a_tool
	not rule
	message := sprintf("the arguments of the tool %q are not known to the policy, so it cannot be called; take one of %s", [input.call.tool, concat(", ", object.keys(data.tools))])
}

deny contains {"code": "argument_unknown", "message": message} if {
	rule
	input.action == "call"
	not only_known_arguments
	message := sprintf("the arguments of this tool have to be an object of these: %s", [concat(", ", known)])
}

deny contains {"code": "path_outside", "message": message} if {
	rule
	input.action == "call"
	not paths_inside
	message := sprintf("%s must be given, and be an absolute path at or below %s, of letters, digits, spaces and _@+=,.- without . or .. as a part", [concat(" and ", list("paths")), concat(" or ", data.directories)])
}

deny contains {"code": "repository_not_listed", "message": message} if {
	rule
	input.action == "call"
	not repository_listed
	message := sprintf("%s must name one of these repositories, spelled so: %s", [concat(" and ", list("repository")), concat(", ", data.repositories)])
}

deny contains {"code": "method_not_listed", "message": message} if {
	not uses_a_tool
	not stays_inside
	message := sprintf("only lists, the listed tools and files at or below %s may be used here", [concat(" or ", data.directories)])
}

scopes_needed contains scope if some scope in standard.scopes_needed

stays_inside if input.action in {"open_stream", "identity.bootstrap", "identity.rotate"}

stays_inside if input.call.method in {
	"initialize", "logging/setLevel",
	"tools/list", "prompts/list", "resources/list", "resources/templates/list",
}

# In a list there are no arguments yet: a tool that can be called with the right
# ones is shown.
stays_inside if {
	input.action == "list_item"
	rule
}

stays_inside if {
	input.action == "call"
	rule
	only_known_arguments
	paths_inside
	repository_listed
}

# A resource is a way around a tool's path. Templates have no path to judge.
stays_inside if {
	input.call.method in {"resources/read", "resources/subscribe", "resources/unsubscribe"}
	startswith(input.call.resource, "file:///")
	is_inside(trim_prefix(input.call.resource, "file://"))
}

uses_a_tool if input.call.method == "tools/call"

rule := data.tools[input.call.tool] if uses_a_tool

list(name) := object.get(rule, name, [])

known := array.flatten([list("paths"), list("repository"), list("others")])

# A key in another case is another key, and unknown.
only_known_arguments if {
	is_object(arguments)
	every name, _ in arguments {
		name in known
	}
}

default arguments := {}

arguments := input.call.arguments

# What is missing, or no string, is inside of nothing.
paths_inside if {
	every name in list("paths") {
		is_inside(arguments[name])
	}
}

# No way of writing a path is undone here. One that a server could read as
# another place is refused: "..", "//", "%2e", "\", what is not plain ASCII.
is_inside(path) if {
	is_string(path)
	count(path) <= 4096
	regex.match(`^(/[A-Za-z0-9 _@+=,.-]+)+/?$`, path)
	plain := trim_suffix(path, "/")
	every part in split(trim_prefix(plain, "/"), "/") {
		trim(part, ". ") != ""
	}
	some directory in data.directories
	at_or_below(directory, plain)
}

at_or_below(directory, path) if path == directory

at_or_below(directory, path) if startswith(path, concat("", [directory, "/"]))

repository_listed if count(list("repository")) == 0

repository_listed if {
	parts := [part | some name in list("repository"); part := arguments[name]; is_string(part)]
	count(parts) == count(list("repository"))
	concat("/", parts) in data.repositories
}
