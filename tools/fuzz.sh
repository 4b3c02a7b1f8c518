#!/bin/sh
# Runs every fuzz target of the module for a time, 20s unless given, one after
# the other. An input that fails stays in testdata/fuzz: commit it with the fix.
set -eu

cd "$(dirname "$0")/.."
time=${1:-20s}
output=$(mktemp)
trap 'rm -f "$output"' EXIT
trap 'exit 1' HUP INT TERM

fuzz() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" </dev/null >"$output" 2>&1 && status=0 || status=$?
	grep -v '^fuzz: elapsed' "$output" || true
	return $status
}

# Go may report its own end of time as a failure, without an input
# (golang/go#75804). That alone is worth a second try.
out_of_time() {
	grep -q '^    context deadline exceeded$' "$output" && ! grep -q 'Failing input written' "$output"
}

listed=$(go test -list '^Fuzz' ./...) || {
	echo "$listed" >&2
	exit 1
}
targets=$(echo "$listed" | awk '
	/^Fuzz/ { name[n++] = $1 }
	/^ok/   { for (i = 0; i < n; i++) print $2, name[i]; n = 0 }')
test -n "$targets"

failed=0
while read -r package name; do
	echo "$package $name"
	fuzz "$package" "$name" || { out_of_time && fuzz "$package" "$name"; } || failed=$((failed + 1))
done <<END
$targets
END
test "$failed" -eq 0
