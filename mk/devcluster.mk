# The cluster that everything runs on: our own on this machine, or with CONTEXT=name that context of your kubeconfig.

.PHONY: cluster-up cluster-status down crash crash-rounds env
cluster-up: setup ## a Kubernetes on this machine, with nothing in it yet
	@.venv/bin/devcluster up

cluster-status: setup ## what runs of it
	@.venv/bin/devcluster status

down: setup ## end the cluster on this machine, whoever started it, and remove every trace of it
	@.venv/bin/devcluster down

crash: setup ## kill everything of it without warning, tests' brokers too, and clean nothing: the next start must cope
	@.venv/bin/devcluster crash

ROUNDS ?= 10
crash-rounds: setup ## make cluster, killed at ROUNDS=10 random moments, and each time make down and make cluster after it
	@mk/crash-rounds $(ROUNDS)

env: setup ## what a shell of yours has to eval: kubectl, delayed-topics and Kafka's tools in PATH, KUBECONFIG, KAFKA_BOOTSTRAP
	@.venv/bin/devcluster env
