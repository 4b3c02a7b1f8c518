#!/bin/sh
# Installs the SDKs that the end-to-end tests drive, each exactly as pinned:
# Python ones by hash (python/*.txt), each in a virtual environment of its own,
# TypeScript ones by lock file (node/package-lock.json). Prints the directory
# they are in, $XDG_CACHE_HOME/arbiter/e2e-<hash>; when it is already there
# nothing is fetched. PYTHON and NODE name other interpreters.
#
# To raise a version: edit python/NAME.in and run, in python/,
#   pip-compile --generate-hashes --no-emit-index-url --no-emit-trusted-host \
#     --no-emit-options --no-annotate --strip-extras --allow-unsafe -o NAME.txt NAME.in
# or edit node/package.json and run, in node/, npm install --package-lock-only.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
node=${NODE:-node}

fail() {
	echo "e2e clients: $1" >&2
	exit 1
}

# An installation belongs to the pins, the interpreters and the kind of machine.
fingerprint() {
	if command -v sha256sum >/dev/null; then sum=sha256sum; else sum="shasum -a 256"; fi
	{
		cat "$here"/python/*.txt "$here/node/package-lock.json" "$here/fetch.sh"
		"$python" -V
		"$node" -v
		uname -sm
	} | $sum | cut -c 1-16
}

"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	fail "needs Python 3.11 or newer with venv (on Debian: python3-venv)"
"$node" -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' 2>/dev/null ||
	fail "needs node 20 or newer"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/arbiter
target=$cache/e2e-$(fingerprint)
if [ -d "$target" ]; then
	echo "$target"
	exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

for pins in "$here"/python/*.txt; do
	name=$(basename "$pins" .txt)
	"$python" -m venv "$work/$name" >&2 || fail "no virtual environment for $name"
	"$work/$name/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps \
		--require-hashes --only-binary=:all: -r "$pins" >&2 || fail "could not install $name"
	"$work/$name/bin/python" -m pip --disable-pip-version-check check >&2 || fail "$name is incomplete"
done

mkdir "$work/node"
cp "$here/node/package.json" "$here/node/package-lock.json" "$here/node/.npmrc" "$work/node/"
(cd "$work/node" && npm ci --loglevel=error) >&2 || fail "could not install the TypeScript SDKs"

# Whole or not at all: a second run at the same time finds the first one's.
mv "$work" "$target" 2>/dev/null || [ -d "$target" ] || fail "could not move the installation to $target"
rm -rf "$target/$(basename "$work")"
echo "$target"
