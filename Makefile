# What people and CI run. On a fresh machine `make up` starts a gateway and
# `make test` checks everything; both fetch what they need, pinned, into
# $XDG_CACHE_HOME/arbiter (~/.cache/arbiter), and what is there already they
# neither fetch nor build again.
#
#   make up       build Arbiter, fetch Envoy, run both here; Ctrl-C ends them
#   make check    before each commit: lint, all tests but e2e
#   make test     everything that must hold: check and e2e; what CI runs
#   make e2e      real MCP clients and attacks against the real gateway
#   make faults   processes stopped and killed, networks broken, liars and floods
#                 for FAULTTIME (5m) and then some; FAULTSEED=n draws the same again
#   make fuzz     each fuzz target for FUZZTIME (20s)
#   make golden   write the generated files again; needs protoc (on Debian:
#                 protobuf-compiler). Read the difference as an attacker would.
#   make bench    what Arbiter costs, into docs/performance.md: 25 minutes on a
#                 machine with nothing else to do; needs h2load
#   make bench-quick  the same in three minutes, printed only
#   make bench-scale  100,000 servers, 100,000 tokens, 16 extauthz, into the same
#                 page: 15 minutes

FUZZTIME ?= 20s
FAULTTIME ?= 5m

# Tests start Envoys and mean what they say about time: no more than two
# packages at once, on a large machine too.
GOTEST = go test -p 2

.PHONY: up build envoy check test lint unit golden fuzz faults e2e bench bench-quick bench-scale

up: build envoy
	@exec bin/arbiter up

build:
	go build -trimpath -o bin/arbiter ./cmd/arbiter

envoy:
	test -n "$$ARBITER_ENVOY" || sh envoy/fetch.sh

test: check e2e

check: lint unit

# The linters see the end-to-end tests too, hence the tag.
lint:
	go mod tidy -diff
	cd tools && go mod tidy -diff
	tools=$$(sh tools/build.sh) && \
	unformatted=$$($$tools/gofumpt -l .) && \
	{ test -z "$$unformatted" || { echo "gofumpt would change:" $$unformatted >&2; exit 1; }; } && \
	$$tools/golangci-lint run && \
	$$tools/regal lint --no-color policies examples/policies
	go vet -tags e2e ./...

unit: envoy
	$(GOTEST) -race -timeout 8m ./...
	go test -count=1 -run '^TestMachine$$' ./extauthz

e2e: envoy
	sh e2e/clients/fetch.sh
	$(GOTEST) -tags e2e -count=1 -timeout 20m ./e2e/...

# The same tests are part of e2e, with shorter times and smaller crowds.
faults: envoy
	FAULTTIME=$(FAULTTIME) $(GOTEST) -tags e2e -count=1 -v -timeout 24h -run TestFault ./e2e

golden:
	tools=$$(sh tools/build.sh) && PATH=$$tools:$$PATH protoc \
		--go_out=. --go_opt=paths=source_relative \
		--go-grpc_out=. --go-grpc_opt=paths=source_relative internal/proto/*.proto
	go test ./internal/layout -run TestGeneratedProtobuf -update
	go test ./xds -run TestGolden -update

fuzz:
	sh tools/fuzz.sh $(FUZZTIME)

bench: envoy
	go run ./bench -profile -write docs/performance.md
	go run ./bench -policies -rounds 4 -write docs/performance.md

bench-quick: envoy
	go run ./bench -quick

bench-scale: envoy
	go run ./bench/scale -write docs/performance.md
