# The jars with which Spark reads Kafka and writes to S3, in the user's cache, keyed by the content of audit/pom.xml.
SPARK_JARS := $(CACHE)/spark-jars/$(shell sha256sum audit/pom.xml | cut -c1-16)

.PHONY: spark-jars
spark-jars: $(SPARK_JARS) ## fetch the jars with which Spark reads Kafka and writes to S3; print their folder
	@echo $(SPARK_JARS)

$(SPARK_JARS):
	@echo "== fetching Spark's jars for Kafka and S3 into $@" >&2
	@mkdir -p $(dir $@)
	@fetched=$$(mktemp -d -p $(dir $@)) && chmod 755 $$fetched \
		&& mvn -q -B -f audit/pom.xml dependency:copy-dependencies -DoutputDirectory=$$fetched >&2 \
		&& { mv -T $$fetched $@ || rm -r $$fetched; }

.PHONY: audit-mutations audit-freezes audit-links bench-audit
audit-mutations: setup $(SPARK_JARS) ## run the mutation test of the auditor: 100 seeds on a million records (takes hours; continues a run that was stopped)
	@.venv/bin/python -m delayed_topics_audit_testing.mutations --jars $(SPARK_JARS) --results bench/results/audit-mutations.json $(ARGS)

WINDOWS ?= 500
audit-freezes: setup $(SPARK_JARS) ## freeze windows under full traffic while workers are killed: no audit may report a false loss
	@.venv/bin/python -m delayed_topics_audit_testing.freezes --jars $(SPARK_JARS) --windows $(WINDOWS) \
		--results bench/results/audit-freezes.json

audit-links: setup $(SPARK_JARS) ## measure how often 24 links of a chain of audits read each row of Kafka (ARGS="--per-second 5000")
	@.venv/bin/python -m delayed_topics_audit_testing.links --jars $(SPARK_JARS) --results bench/results/audit-links.json $(ARGS)

bench-audit: setup $(SPARK_JARS) ## measure how fast an audit is, compared with a plain Python consumer (ARGS="--report page.html")
	@.venv/bin/python -m delayed_topics_audit_testing.bench --jars $(SPARK_JARS) --records 1000000 --records 10000000 \
		--results bench/results/audit.json $(ARGS)
