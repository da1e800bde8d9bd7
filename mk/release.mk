# A release: images, the chart, SBOMs and provenance. IMAGE_REGISTRY=registry/path is the registry for it.
RELEASE := build/release

.PHONY: release publish reproduce
release: setup ## make a release, with images, chart, SBOMs and provenance, in build/release
	@.venv/bin/devcluster release $(RELEASE)

publish: release ## push the release to IMAGE_REGISTRY=registry/path, after `docker login`; PLAIN_HTTP=1 for a registry without TLS
	@.venv/bin/devcluster publish $(RELEASE)

reproduce: setup ## make a release of this commit twice, with nothing shared but the tools, and compare both bit by bit
	@mk/reproduce
