# The commands of this repository. Every target makes what it needs; `make` alone lists them.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

DEMO         := $(BIN)/invoke
DEMO_CLUSTER := --file clusters/demo.yaml

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-large check bench lock schemas test-tools bed bed-down bed-ec2 clean

help:  ## list the targets
	@grep -E '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed 's/\$$\$$/$$/g' | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

setup: $(READY)  ## make .venv with everything, at the versions of requirements.lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "trainyard needs Python 3.10 to 3.13; this is $$($(PYTHON) --version). Name another: make PYTHON=python3.12 ..."; exit 3; }
	@# Debian and Ubuntu ship python3 without ensurepip; venv then fails half-way.
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "python3-venv is missing; installing it"; $(SUDO) apt-get update -q && $(SUDO) apt-get install -y -q python3-venv; }
	@# An environment of another Python, or one that was cut short, is made anew.
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@# Compiled here, once: a Ray cluster starts some thirty Python processes, and import ray takes 0.8 s instead of 0.4 s otherwise.
	@$(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e .
	@$(BIN)/python -m compileall -q trainyard runner
	@echo "next: . $(BIN)/activate"
	@touch $@

# The cluster is removed in any case, also after an error or Ctrl-C; the exit code is the first failure's.
demo: $(READY)  ## a Ray cluster on this machine, proven, trained on, removed
	@set -e; trap 'code=$$?; trap - EXIT; $(DEMO) cluster.down --end-runs $(DEMO_CLUSTER) || exit $$?; exit $$code' EXIT; \
	$(DEMO) cluster.up $(DEMO_CLUSTER); \
	$(DEMO) smoke.run $(DEMO_CLUSTER); \
	$(DEMO) train.dispatch jobs/cartpole $(DEMO_CLUSTER)

test: $(READY) check  ## every test: unit tests, then real Ray clusters and a real browser
	@$(BIN)/python -m tests.together

TESTS := tests/large
test-large: $(READY)  ## tests that take many minutes, or want other Rays and Pythons: TESTS=tests/large/test_X.py for one
	@$(BIN)/python -m pytest $(TESTS)

check: $(READY)  ## format, lint, types, unit tests: under a minute
	@$(BIN)/ruff format --check -q . || { echo "-> .venv/bin/ruff format ."; exit 1; }
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy --no-error-summary & types=$$!; $(BIN)/python -m pytest -q tests/unit; tests=$$?; wait $$types && exit $$tests

bench: $(READY)  ## ratios measured side by side in one run
	@$(BIN)/python -m benchmarks.run

# The tests' Docker engine is a second one, of our own, with data of its own: one that runs here already is left alone.
TOOLS := chromium:chromium dockerd:docker.io unpigz:pigz docker-registry:docker-registry mmdebstrap:mmdebstrap,debian-archive-keyring ip:iproute2 rsync:rsync ssh:openssh-client \
  vulkaninfo:vulkan-tools,mesa-vulkan-drivers
test-tools: $(READY)  ## what the tests use beyond Python: Chromium, a Docker engine and its images (Debian, Ubuntu; root)
	@missing=; for tool in $(TOOLS); do command -v $${tool%%:*} >/dev/null || missing="$$missing $$(echo $${tool##*:} | tr , ' ')"; done; \
	  [ -z "$$missing" ] || { $(SUDO) apt-get update -q && $(SUDO) apt-get install -y -q --no-install-recommends $$missing; }
	@$(SUDO) $(BIN)/python -m tests.bed build

HOSTS := 3
bed: $(READY)  ## a Kubernetes cluster of HOSTS=3 hosts to play with (root): eval "$$(make -s bed)"
	@$(SUDO) $(BIN)/python -m tests.bed kubernetes up $(HOSTS)

bed-down: $(READY)  ## remove that cluster
	@$(SUDO) $(BIN)/python -m tests.bed kubernetes down

bed-ec2: $(READY)  ## a shell with a region of AWS to play with (root): moto, and containers as instances
	@$(SUDO) $(BIN)/python -m tests.bed ec2

lock: $(READY)  ## resolve the dependencies of pyproject.toml anew
	@$(BIN)/uv pip compile -q pyproject.toml --all-extras --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock
	@echo "uv==$$($(BIN)/uv --version | cut -d' ' -f2)" | $(BIN)/uv pip compile -q - --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements-uv.lock

schemas: $(READY)  ## write the JSON Schemas of both files to docs/
	@$(BIN)/python -m trainyard.spec.schema

clean:  ## remove what the targets made here (clusters are removed by trainyard cluster.down)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
