# Our images and the chart, on the cluster of this machine or of CONTEXT=name.
ifdef CONTEXT
HELM = $(or $(shell command -v helm),$(CACHE)/bin/helm)
KUBECTL = $(or $(shell command -v kubectl),$(CACHE)/bin/kubectl)
else
HELM = $(CACHE)/bin/helm
KUBECTL = $(CACHE)/bin/kubectl
endif

.PHONY: cluster images install-chart
cluster: install-chart ## start the cluster with the operator and an evaluation Kafka

images: cluster-up ## build the images that have changed, load them onto the cluster, and write their names to build/images.yaml for the chart
	@.venv/bin/devcluster load --values build/images.yaml operator worker audit kafka

install-chart: images ## install the chart from this work tree, or upgrade the installation
	@mk/install-chart $(HELM) $(KUBECTL)
