# The cluster for everything else: our own on this machine, or with CONTEXT=name that of a context of your kubeconfig.

.PHONY: cluster-up cluster-status down crash crash-rounds env
cluster-up: setup ## start an empty Kubernetes on this machine
	@.venv/bin/devcluster up

cluster-status: setup ## list the programs of the cluster that run
	@.venv/bin/devcluster status

down: setup ## end the cluster on this machine, whoever started it, and remove every trace of it
	@.venv/bin/devcluster down

crash: setup ## kill the whole cluster without warning, and the brokers of tests, and clean nothing up: the next start must cope
	@.venv/bin/devcluster crash

ROUNDS ?= 10
crash-rounds: setup ## kill make cluster at ROUNDS=10 random moments, and run make down and make cluster after each kill
	@mk/crash-rounds $(ROUNDS)

env: setup ## print what your shell has to eval: kubectl, delayed-topics and Kafka's tools in PATH, KUBECONFIG, KAFKA_BOOTSTRAP
	@.venv/bin/devcluster env
