# What others install: images, chart, and what is told about them. IMAGE_REGISTRY=registry/path says where it is to be found.
RELEASE := build/release

.PHONY: release publish reproduce
release: setup ## images, chart, SBOMs and provenance in build/release, the same bits wherever they are built
	@.venv/bin/devcluster release $(RELEASE)

publish: release ## push that to IMAGE_REGISTRY=registry/path, where `docker login` was done; PLAIN_HTTP=1 for one without TLS
	@.venv/bin/devcluster publish $(RELEASE)

reproduce: setup ## make the release twice, in two clones that differ in all that should not matter, and compare
	@mk/reproduce
