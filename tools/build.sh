#!/bin/sh
# Builds the developer tools that the go.mods here pin, once, and prints the
# directory they are in: $XDG_CACHE_HOME/arbiter/tools-<hash>. When it is there
# already nothing is built or fetched. The first time takes minutes.
#
# govulncheck is pinned too but asks its database on the network, so no target
# runs it: go tool -modfile=tools/go.mod govulncheck ./...
set -eu

cd "$(dirname "$0")"

# Tools belong to their pins and to the Go that built them: golangci-lint
# refuses code for a newer Go than its own.
fingerprint() {
	if command -v sha256sum >/dev/null; then sum=sha256sum; else sum="shasum -a 256"; fi
	{
		go version
		cat go.mod go.sum regal/go.mod regal/go.sum build.sh
	} | $sum | cut -c 1-16
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/arbiter
target=$cache/tools-$(fingerprint)
if [ -d "$target" ]; then
	echo "$target"
	exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "tools: building golangci-lint, gofumpt, regal and the protobuf generators" >&2
go build -trimpath -buildvcs=false -o "$work/" \
	github.com/golangci/golangci-lint/v2/cmd/golangci-lint \
	mvdan.cc/gofumpt \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc >&2
go -C regal build -trimpath -buildvcs=false -o "$work/" github.com/open-policy-agent/regal >&2

# Whole or not at all: a second run at the same time finds the first one's.
mv "$work" "$target" 2>/dev/null || [ -d "$target" ]
rm -rf "$target/$(basename "$work")"
echo "$target"
