# Two targets for a newcomer: `make run` and `make test`. `make help` lists all.
SHELL := /bin/bash
GO ?= go
export CGO_ENABLED = 0

COMMIT := $(shell git describe --always --dirty 2>/dev/null)
# Two test binaries at a time: each runs a compiler of its own.
TEST := $(GO) test -p 2 -timeout 25m

.PHONY: help build run test test-long bench lint deps browser clean go

help:
	@echo "make run        build, install the CPU plugin, train a mixture of experts on Go's own source code, on 8 virtual devices"
	@echo "make test       install what tests need, check the sources, run all tests"
	@echo "make test-long  the long sweeps as well"
	@echo "make bench      compare with JAX and torch on this machine (an hour; installs both)"
	@echo "make build      bin/titan"
	@echo "make lint       gofmt, go vet, staticcheck and the rules of the house"
	@echo "make clean      remove what the targets built"

go:
	@command -v $(GO) >/dev/null || { echo "titan needs Go 1.26 or later and found no '$(GO)'; install it from https://go.dev/dl"; exit 1; }
	@out=$$($(GO) list -m 2>&1) || { echo "$$out"; echo "titan needs Go 1.26 or later. Install it from https://go.dev/dl, or set GOTOOLCHAIN=auto: then Go fetches it itself"; exit 1; }

build: go
	$(GO) build -trimpath -ldflags "-X main.commit=$(COMMIT)" -o bin/titan ./cmd/titan

deps: build browser
	@bin/titan plugin install cpu
	@bin/titan plugin install tpu || echo "note: without the tpu plugin the tests that compile for TPU are skipped"

# The report's pages are tried in a real browser.
browser:
	@for b in $$TITAN_CHROMIUM chromium chromium-browser google-chrome google-chrome-stable; do command -v "$$b" >/dev/null && exit 0; done; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit 0; fi; \
	echo "note: without Chromium the report's pages are not tried in a browser; install it (Debian: sudo apt-get install chromium), or name one in TITAN_CHROMIUM"

run: build
	bin/titan plugin install cpu
	bin/titan doctor
	examples/gosrc/run.sh

lint: go
	@out=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/houserules

test: deps lint
	$(TEST) ./...

test-long: deps lint
	TITAN_LONG=1 $(GO) test -p 1 -timeout 4h ./...

bench: deps
	bench/compare.py
	bench/trace.sh
	$(GO) test -run '^$$' -bench . -benchtime 3x ./graph ./pjrt

clean:
	rm -rf bin
