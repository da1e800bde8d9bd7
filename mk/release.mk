# What others install: images, chart, and what is told about them. IMAGE_REGISTRY=registry/path says where it is to be found.
RELEASE := build/release

.PHONY: release publish reproduce
release: setup ## images, chart, SBOMs and provenance in build/release
	@.venv/bin/devcluster release $(RELEASE)

publish: release ## push that to IMAGE_REGISTRY=registry/path, where `docker login` was done; PLAIN_HTTP=1 for one without TLS
	@.venv/bin/devcluster publish $(RELEASE)

reproduce: setup ## make a release of this commit twice, with nothing shared but the tools, and compare them bit by bit
	@mk/reproduce
