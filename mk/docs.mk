# The pages: how they are written, and the site that is made from them.
PAGES := $(sort $(wildcard *.md)) $(sort $(wildcard docs/*.md))
# What pages link to. The site has the folders of the repository, so that the same links work in both.
SITE_FILES := $(PAGES) LICENSE docs bench/results examples charts/delayed-topics/files

.PHONY: prose site
prose: setup ## what is hard to read in the pages, and their line breaks set right
	@.venv/bin/mdformat $(filter-out docs/reference.md,$(PAGES))
	@"$$(.venv/bin/devcluster tool vale)" --config docs/.vale.ini $(PAGES)

site: setup ## the pages as a site to search, in build/site
	@rm -rf build/site-source && mkdir -p build/site-source
	@git ls-files -z $(SITE_FILES) | xargs -0 cp --parents --target-directory=build/site-source
	@# words behind the language of a code block are for the test that runs it
	@find build/site-source -name '*.md' -exec sed --in-place --regexp-extended 's/^```([a-z]+) .*/```\1/' {} +
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --config-file docs/mkdocs.yml
	@echo "build/site/index.html"

.PHONY: architecture
architecture: setup ## the picture of the members in docs/architecture.md, drawn from the import contracts
	@.venv/bin/python -m checks.architecture

.PHONY: size
size: setup ## how large the code is by member, into docs/code-size.md: FORMER=commit NOW=commit
	@.venv/bin/python -m checks.size $(or $(FORMER),fe9259c) $(or $(NOW),HEAD)
	@.venv/bin/mdformat docs/code-size.md
