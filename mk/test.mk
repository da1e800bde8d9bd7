# The tiers of tests, from quick and reliable to long. docs/testing.md says which tests are in which tier, and why.
REPORTS := build/reports
# The tiers that .ci/run runs, in this order. A tier is added here when it was green ten times in a row.
GATE := quick broker api smoke

report = $@
# Runs pytest with these arguments, and prints its counts as the last line, even if other output comes late. With CI set, pytest does
# not cut the reasons in its summary to the width of a terminal.
define pytest
mkdir -p $(REPORTS) && rm -f $(REPORTS)/$(report).xml && code=0 \
	&& { CI=true .venv/bin/pytest --junitxml=$(REPORTS)/$(report).xml $(1) || code=$$?; } \
	; .venv/bin/python -m checks.counts $(REPORTS)/$(report).xml; exit $$code
endef
# in two steps, because eval "$$(…)" would hide the failure of the command
on_cluster = exports="$$(.venv/bin/devcluster env)"; eval "$$exports"

.PHONY: test quick check unit broker slow smoke api slow-api matrix e2e
test: setup ## run the gate: its tiers in order, until the first that fails
	@mk/gate $(REPORTS) $(GATE)

check: setup ## check lint, types, import contracts, duplicates, sizes, generated files, documents
	@$(call pytest,-q -n 2 -m "check and not cluster")

unit: setup ## run pure tests and properties, which start no process and use no network
	@$(call pytest,-q -n 2 --timeout=120 -m unit)

# In one run, the longest test of `check` keeps one processor busy, and `unit` the other.
quick: setup ## run check and unit together
	@$(call pytest,-q -n 2 -m "(check or unit) and not cluster")

processes = (process or spark or broker) and not api and not cluster
# These tests wait for other processes most of the time, so four of them share two cores.
broker: setup ## test the promises about records on a real Kafka broker, with workers, clients and Spark as processes
	@$(call pytest,-n 4 -m "$(processes) and not slow")

slow: setup ## like broker, but for outages, takeovers and other tests that take minutes
	@$(call pytest,-n 2 -m "$(processes) and slow")

story = $(or $(wildcard */tests/test_$(STORY).py */tests/test_story_$(STORY).py),$(error STORY=$(STORY): no test_$(STORY).py))
# These test files N=20 times, one after the other and without xdist, which would take repeated tests for one.
repeated = --keep-duplicates $(foreach n,$(shell seq $(or $(N),1)),$(story))
stories = --stories=$(REPORTS)/$(report).json

api: setup ## test the operator, the chart and the CRDs on a real API server and a broker, without a node: STORY=refusals N=20
	@.venv/bin/devcluster programs
	@$(call pytest,$(stories) -m "api and not slow and not cluster" $(if $(STORY),$(repeated),-n 4))

slow-api: setup ## like api, but for tests that take minutes: STORY=operator_rights for one file, N=10 to repeat it
	@.venv/bin/devcluster programs
	@$(call pytest,$(stories) -m "api and slow and not cluster" --keep-duplicates $(foreach n,$(shell seq $(or $(N),1)),$(if $(STORY),$(story),operator/tests crds/tests charts/tests)))

# The newest release of each supported minor version. Everything else runs on the version in images/kafka/pom.xml.
KAFKA_VERSIONS ?= 4.0.2 4.1.2 4.2.2 4.3.1 4.4.0
matrix: setup ## run the tiers broker and api on each supported version of Kafka: KAFKA_VERSIONS="4.0.2 4.4.0" TIERS=broker
	@mk/matrix $(REPORTS) "$(KAFKA_VERSIONS)" "$(or $(TIERS),broker api)"

smoke: setup down ## test the main job once, through all components, on a new cluster
	@rm -f $(REPORTS)/smoke.xml; $(MAKE) --no-print-directory cluster
	@$(on_cluster); $(call pytest,-m smoke e2e)

# These tests wait most of the time, so four processes share two cores; checks/scheduling.py says which tests run alone. A slow story
# runs only when it is named: STORY=autoscale.
e2e: cluster ## test the user stories on the real cluster: STORY=main for one of them, N=20 to repeat it
	@$(on_cluster); $(call pytest,$(stories) -m "cluster and not smoke$(if $(STORY),, and not slow)" $(if $(STORY),$(repeated),-n 4 --no-loadscope-reorder))
