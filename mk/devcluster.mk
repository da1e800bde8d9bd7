# The cluster that everything runs on: our own on this machine, or with CONTEXT=name that context of your kubeconfig.

.PHONY: cluster-up cluster-status down env
cluster-up: setup ## a Kubernetes on this machine, with nothing in it yet
	@.venv/bin/devcluster up

cluster-status: setup ## what runs of it
	@.venv/bin/devcluster status

down: setup ## end the cluster on this machine and remove every trace of it
	@.venv/bin/devcluster down

env: setup ## prints KUBECONFIG=... and KAFKA_BOOTSTRAP=..., for eval
	@.venv/bin/devcluster env
