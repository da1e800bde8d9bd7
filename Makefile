# Every target first sets up what it needs. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/delayed-topics
UV := $(CACHE)/uv/bin/uv
MEMBERS := core crds kafka operator worker client audit devcluster e2e faults bench

# If this variable is set, each of hundreds of Python processes compiles all its imports: an operator then starts in 3 s instead of 1.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup lock
help: ## print this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: .venv/.engine ## install the Python environment from requirements.lock, and the engine

lock: | $(UV) ## resolve all dependencies again into requirements.lock
	@# uv.lock names the package index from which it was made, while requirements.lock has versions and hashes only
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

# The folders are prerequisites too, because the removal of a file is a change. The cache has the wheel if any work tree has built
# this content before.
ENGINE := worker/engine
.venv/.engine: .venv/.synced $(wildcard $(addprefix $(ENGINE)/,*.toml *.lock *.pyi .cargo/*)) $(shell find $(ENGINE)/src)
	@wheel="$$(.venv/bin/devcluster engine)"; $(UV) pip install --quiet --no-deps --reinstall "$$wheel"
	@touch $@

-include mk/*.mk

.PHONY: demo
demo: cluster ## show the main job, and leave the cluster up
	@$(on_cluster); .venv/bin/python examples/demo.py
