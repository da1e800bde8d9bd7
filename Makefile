# Every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/delayed-topics
UV := $(CACHE)/uv/bin/uv
MEMBERS := core crds kafka operator worker client audit devcluster e2e faults bench

# Where it is set, each of the hundreds of Python processes compiles all that it imports: an operator starts in 3 s instead of 1.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup lock
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: .venv/.engine ## the Python environment, from requirements.lock, and the relay's engine in it

lock: | $(UV) ## resolve all dependencies anew into requirements.lock
	@# uv.lock names the package index it was made with, requirements.lock holds versions and hashes only
	@$(UV) lock --quiet
	@$(UV) export --quiet --frozen --all-packages --all-extras --no-emit-workspace --no-header --output-file requirements.lock

$(UV):
	@echo "== installing uv into $(CACHE)/uv" >&2
	@python3 -m venv $(CACHE)/uv && $(CACHE)/uv/bin/pip install --quiet 'uv>=0.8,<1'

.venv/.synced: requirements.lock $(MEMBERS:=/pyproject.toml) | $(UV)
	@echo "== installing the Python packages of requirements.lock into .venv" >&2
	@test -d .venv || $(UV) venv --quiet .venv
	@$(UV) pip sync --quiet --require-hashes requirements.lock
	@$(UV) pip install --quiet --no-deps $(addprefix -e ./,$(MEMBERS))
	@touch $@

# Folders too, since a file that is gone is a change. The cache has the wheel if any work tree has built this content before.
ENGINE := worker/engine
.venv/.engine: .venv/.synced $(wildcard $(addprefix $(ENGINE)/,*.toml *.lock *.pyi .cargo/*)) $(shell find $(ENGINE)/src)
	@wheel="$$(.venv/bin/devcluster engine)"; $(UV) pip install --quiet --no-deps --reinstall "$$wheel"
	@touch $@

-include mk/*.mk

.PHONY: demo
demo: cluster ## the main job, for people to watch; leaves the cluster up
	@$(on_cluster); .venv/bin/python examples/demo.py
