# One command per job. `make test` is what the README promises and what CI runs.

GO    ?= go
TOOLS := $(GO) tool -modfile=.ci/tools.mod
# What developers measure with is a module of its own: docs/decisions/0066-bench-module.md
MODULES := . cmd/farhand-bench

.PHONY: test deps programs packages checks verify fmt vet lint tidy vuln unit attack sdk ops fuzz cover docs web pictures build image images \
  snapshot release \
  demo bench trace

# Packages are downloaded beside the checks, which compute.
test: programs ## everything, on a fresh machine too
	@$(MAKE) --no-print-directory -j2 packages checks
	@$(MAKE) --no-print-directory unit

deps: programs packages ## what the tests need beyond Go: redis-server, nginx, node, curl and packages for them

programs:
	@sh .ci/deps programs

packages:
	@sh .ci/deps packages

checks: ## format, vet, lint and vulnerabilities
	@for check in $(VERIFY) fmt vet lint vuln; do $(MAKE) --no-print-directory $$check || exit 1; done

fmt:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted (run gofmt -w):"; echo "$$out"; exit 1; fi

PART ?= 1/1
# Downloads are compared with go.sum when they come, and again in the first PART.
VERIFY = $(if $(filter 1/%,$(PART)),verify)
# vet, lint and unit share compiled packages: all use the race detector.
vet:
	for m in $(MODULES); do $(GO) vet -C $$m -race ./... || exit 1; done

# Checking the tests takes two thirds of the time, so only PART=1/6 does. Without them, what only they use is unused.
CHECKED = $(if $(filter 1/%,$(PART)),,-tests=false -checks inherit,-U1000)
lint: ## staticcheck, and the words of comments and docs; of tests only in the first PART
	@sh .ci/voice
	export GOFLAGS="$$($(GO) env GOFLAGS) -race"; check=$$($(TOOLS) -n staticcheck) && \
	  for m in $(MODULES); do (cd $$m && $$check $(CHECKED) ./...) || exit 1; done

verify: ## what was downloaded is what go.sum says
	for m in $(MODULES); do $(GO) mod verify -C $$m || exit 1; done

tidy: ## go.mod and go.sum of both modules
	for m in $(MODULES); do $(GO) mod tidy -C $$m || exit 1; done

vuln: ## known vulnerabilities in what is called
	@GO=$(GO) sh .ci/vuln

unit: ## unit, integration and attack suites, seeds of the fuzz targets; PART=1/6 for a sixth of what costs the most
	@GO=$(GO) PART=$(PART) sh .ci/unit

attack: ## what an attacker with a valid token would do, against pods of 3.5 GiB; part of unit, too
	$(GO) test -race -timeout 20m -count=1 -run '^TestAttack[A-Z]' -v ./cmd/farhand

SDK ?= client sdk-python python-client kotlin desktop soak
sdk: ## what only a change of an SDK or of the desktop device breaks, with its installs; SDK="kotlin client" for some
	@GO=$(GO) sh .ci/extra $(SDK)

OPS ?= release alerts chart proxies compose upgrade week otlp
ops: ## how Farhand is run: what only a change of its own breaks, with its installs; OPS="chart alerts" for some
	@GO=$(GO) sh .ci/extra $(OPS)

FUZZTIME ?= 30s
FUZZPART ?= 1/1
fuzz: ## every fuzz target for FUZZTIME each; FUZZPART=1/3 for those of a third of the packages
	@GO=$(GO) FUZZTIME=$(FUZZTIME) FUZZPART=$(FUZZPART) sh .ci/fuzz

COVERPART ?= 1/1
cover: ## the coverage of the packages of .ci/coverage against their floors; COVERPART=1/3 for a third of the packages
	@GO=$(GO) COVERPART=$(COVERPART) sh .ci/cover

docs: ## rewrite what is generated from code
	$(GO) test ./cmd/farhand -run TestDocsAreGenerated -update
	$(GO) test ./deploy/grafana -update
	$(GO) test ./ws/node/commands -run 'TestDocs|TestDefinitions' -update
	$(GO) test ./sdk/python/generate -update

web: ## rebuild the pages that the program serves (web/dist)
	cd web && npm ci --silent --no-audit --no-fund && npm run --silent build

pictures: ## rewrite the pictures of the pages (docs/pictures)
	DOC_PICTURES=$(CURDIR)/docs/pictures $(GO) test -count=1 ./cmd/farhand \
	  -run '^Test(FiveMinutes|Console|ConsoleAdmin|DevicePage)$$'

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# gin without MessagePack, which nothing here speaks: docs/decisions/0020-weight.md
TAGS ?= nomsgpack
build:
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags "-X main.release=$(VERSION)" -o bin/farhand ./cmd/farhand

IMAGE ?= farhand
COMMIT = $(shell git rev-parse HEAD 2>/dev/null)
image: ## the container image for this machine, which says its version
	docker build --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t $(IMAGE):$(VERSION) .

images: ## the image for amd64 and arm64, pushed as IMAGE=registry/name
	docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) \
	  --push -t $(IMAGE):$(VERSION) .

# A checksum file is signed if SIGNING_KEY names a key of gpg: CONTRIBUTING.md
RELEASE = sh .ci/deps release && GOFLAGS= .cache/bin/goreleaser release --clean $(if $(SIGNING_KEY),,--skip=sign)
snapshot: ## what a release would have, in dist
	$(RELEASE) --snapshot

release: ## a draft of a release of the current tag
	$(RELEASE)

demo:
	@echo "Building Farhand. The first time that takes about a minute, and nothing is printed until then."
	$(GO) run -tags $(TAGS) ./cmd/farhand demo

trace: ## ten minutes of events in a console with 10,000 sessions: memory, frames and long tasks beside their budgets
	$(GO) test -timeout 20m -count=1 -run 'TestTenThousandSessions$$' -v ./cmd/farhand -console-trace 10m

BENCHFLAGS ?=
bench: ## every row of the target table, beside the reference; BENCHFLAGS="--only listing" or "--quick" for less
	CGO_ENABLED=0 $(GO) build -C cmd/farhand-bench -trimpath -tags $(TAGS) -o ../../bin/farhand-bench .
	bin/farhand-bench --repeat 5 $(BENCHFLAGS)
