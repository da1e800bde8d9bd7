.PHONY: bench bench-operator bench-rebalance bench-shared
bench: setup ## measure how fast and how late the workers are, compared with other tools; ARGS=--help lists the options
	@.venv/bin/delayed-topics-bench $(ARGS)

bench-rebalance: setup ## measure the effect of rebalances on a busy group, by protocol and assignor, compared with plain consumers; ARGS=--quick for a few minutes
	@.venv/bin/delayed-topics-bench --part rebalance $(ARGS)

bench-shared: setup ## measure what idle topics cost shared workers, how soon a new topic is served, and how a busy topic affects others
	@.venv/bin/delayed-topics-bench --part shared --part neighbours $(ARGS)

bench-operator: setup ## measure the operator with 1,000 resources: until Ready, idle, and at 100 edits a second; ARGS=--help lists the options
	@.venv/bin/devcluster programs
	@.venv/bin/delayed-topics-bench-operator $(ARGS)
