# One command per job. `make test` is what the README promises and what CI runs.

GO    ?= go
TOOLS := $(GO) tool -modfile=.ci/tools.mod

.PHONY: test deps fmt vet lint unit attack fuzz docs build demo bench

test: deps fmt vet lint unit ## everything, on a fresh machine too

deps: ## what the tests need beyond Go: redis-server, nginx, node, curl
	@sh .ci/deps

fmt:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted (run gofmt -w):"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet ./...

lint:
	$(TOOLS) staticcheck ./...

unit: ## unit and integration suites, seeds of the fuzz targets included
	$(GO) test -race -timeout 8m ./...

attack: ## what an attacker with a valid token would do, against pods of 3.5 GiB; part of unit, too
	$(GO) test -race -timeout 8m -count=1 -run '^TestAttack' -v ./cmd/farhand

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

docs: ## rewrite what is generated from code
	$(GO) test ./cmd/farhand -run TestDocsAreGenerated -update

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/farhand ./cmd/farhand

demo:
	$(GO) run ./cmd/farhand demo

BENCHFLAGS ?=
bench: build ## every row of the target table, beside the references; BENCHFLAGS="--only listing" or "--quick" for less
	bin/farhand bench --fleet 2 --reference --repeat 5 $(BENCHFLAGS)
