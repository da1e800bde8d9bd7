# The pages: their checks, and the site that is built from them.
PAGES := $(sort $(wildcard *.md)) $(sort $(wildcard docs/*.md))
# The targets of links in pages. The site has the same folders as the repository, so that the same links work in both.
SITE_FILES := $(PAGES) LICENSE docs bench/results examples charts/delayed-topics/files

.PHONY: prose site
prose: setup ## format the pages, and list what is hard to read in them
	@.venv/bin/mdformat $(filter-out docs/reference.md,$(PAGES))
	@"$$(.venv/bin/devcluster tool vale)" --config docs/.vale.ini $(PAGES)

site: setup ## build a searchable site from the pages, in build/site
	@rm -rf build/site-source && mkdir -p build/site-source
	@git ls-files -z $(SITE_FILES) | xargs -0 cp --parents --target-directory=build/site-source
	@# the words after the language of a code block are only for the test that runs it
	@find build/site-source -name '*.md' -exec sed --in-place --regexp-extended 's/^```([a-z]+) .*/```\1/' {} +
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --config-file docs/mkdocs.yml
	@echo "build/site/index.html"

.PHONY: architecture
architecture: setup ## draw the picture of the members in docs/architecture.md from the import contracts
	@.venv/bin/python -m checks.architecture

.PHONY: size
size: setup ## measure the size of the code by member, for docs/code-size.md: FORMER=commit NOW=commit
	@.venv/bin/python -m checks.size $(or $(FORMER),fe9259c) $(or $(NOW),HEAD)
	@.venv/bin/mdformat docs/code-size.md
