# The tiers of tests, from quick and certain to long; docs/testing.md says what is in which, and why.
REPORTS := build/reports
# What .ci/run asks for, in this order. A tier enters when it was green ten times in a row.
GATE := quick broker api smoke

report = $@
# pytest with these arguments, and its counts on the last line, whatever else printed late. With CI it doesn't cut the reasons
# in its last lines to the width of a terminal.
define pytest
mkdir -p $(REPORTS) && rm -f $(REPORTS)/$(report).xml && code=0 \
	&& { CI=true .venv/bin/pytest --junitxml=$(REPORTS)/$(report).xml $(1) || code=$$?; } \
	; .venv/bin/python -m checks.counts $(REPORTS)/$(report).xml; exit $$code
endef
# a failing command inside eval "$$(…)" would go unseen
on_cluster = told="$$(.venv/bin/devcluster env)"; eval "$$told"

.PHONY: test quick check unit broker slow smoke api slow-api matrix e2e
test: setup ## the gate: its tiers in order, until the first that fails
	@mk/gate $(REPORTS) $(GATE)

check: setup ## lint, types, import contracts, duplicates, sizes, generated files, documents
	@$(call pytest,-q -n 2 -m "check and not cluster")

unit: setup ## pure tests and properties: no process, no network
	@$(call pytest,-q -n 2 --timeout=120 -m unit)

# One run: what takes longest of `check` keeps one processor busy, and `unit` the other.
quick: setup ## check and unit in one
	@$(call pytest,-q -n 2 -m "(check or unit) and not cluster")

processes = (process or spark or broker) and not api and not cluster
# They wait for one another most of the time, so four share two cores.
broker: setup ## the promises about records, on a real Kafka broker, with workers, clients and Spark as processes
	@$(call pytest,-n 4 -m "$(processes) and not slow")

slow: setup ## as broker, but outages, takeovers and what plays for minutes
	@$(call pytest,-n 2 -m "$(processes) and slow")

story = $(or $(wildcard */tests/test_$(STORY).py */tests/test_story_$(STORY).py),$(error STORY=$(STORY): no test_$(STORY).py))
# These files of tests, N=20 times, one after the other: xdist would take a test that comes twice for one.
repeated = --keep-duplicates $(foreach n,$(shell seq $(or $(N),1)),$(story))
stories = --stories=$(REPORTS)/$(report).json

api: setup ## the operator, the chart and the CRDs against a real API server and a broker, without a node: STORY=refusals N=20
	@.venv/bin/devcluster programs
	@$(call pytest,$(stories) -m "api and not slow and not cluster" $(if $(STORY),$(repeated),-n 4))

slow-api: setup ## as api, but what takes minutes: STORY=operator_rights for one file, N=10 to repeat it
	@.venv/bin/devcluster programs
	@$(call pytest,$(stories) -m "api and slow and not cluster" --keep-duplicates $(foreach n,$(shell seq $(or $(N),1)),$(if $(STORY),$(story),operator/tests crds/tests charts/tests)))

# The newest release of each minor version that is supported; images/kafka/pom.xml has the one that everything else runs on.
KAFKA_VERSIONS ?= 4.0.2 4.1.2 4.2.2 4.3.1 4.4.0
matrix: setup ## the tiers broker and api on each supported version of Kafka: KAFKA_VERSIONS="4.0.2 4.4.0" TIERS=broker
	@mk/matrix $(REPORTS) "$(KAFKA_VERSIONS)" "$(or $(TIERS),broker api)"

smoke: setup down ## the main job once, through all parts, on a cluster made from nothing
	@rm -f $(REPORTS)/smoke.xml; $(MAKE) --no-print-directory cluster
	@$(on_cluster); $(call pytest,-m smoke e2e)

# On two cores these wait most of the time, so four processes share them; conftest.py says which tests don't go together. One that is slow
# is run by its name alone: STORY=autoscale.
e2e: cluster ## the user stories on the real cluster: STORY=main for one of them, N=20 to repeat it
	@$(on_cluster); $(call pytest,$(stories) -m "cluster and not smoke$(if $(STORY),, and not slow)" $(if $(STORY),$(repeated),-n 4 --no-loadscope-reorder))
