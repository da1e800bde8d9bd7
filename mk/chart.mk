# Our images and the chart, on the cluster of this machine or that of CONTEXT=name.
ifdef CONTEXT
HELM = $(or $(shell command -v helm),$(CACHE)/bin/helm)
KUBECTL = $(or $(shell command -v kubectl),$(CACHE)/bin/kubectl)
else
HELM = $(CACHE)/bin/helm
KUBECTL = $(CACHE)/bin/kubectl
endif

.PHONY: cluster images install-chart
cluster: install-chart ## the cluster with the operator and an evaluation Kafka in it

images: cluster-up ## build what has changed of our images, put it onto the cluster, and name it in build/images.yaml for the chart
	@.venv/bin/devcluster load --values build/images.yaml operator worker audit kafka

install-chart: images ## install the chart from this work tree, or bring what is installed up to date
	@mk/install-chart $(HELM) $(KUBECTL)
