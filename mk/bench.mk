.PHONY: bench bench-operator bench-rebalance bench-shared
bench: setup ## how fast and how late the relay is, beside what else there is; ARGS=--help tells the options
	@.venv/bin/delayed-topics-bench $(ARGS)

bench-rebalance: setup ## what rebalances do to a busy group, by protocol and assignor, beside plain consumers; ARGS=--quick for a few minutes
	@.venv/bin/delayed-topics-bench --part rebalance $(ARGS)

bench-shared: setup ## what idle topics cost workers that share them, how soon a new one is served, and what a noisy topic does to others
	@.venv/bin/delayed-topics-bench --part shared --part neighbours $(ARGS)

bench-operator: setup ## what the operator needs for 1,000 resources: until Ready, idle, 100 edits a second; ARGS=--help tells the options
	@.venv/bin/devcluster programs
	@.venv/bin/delayed-topics-bench-operator $(ARGS)
