# The engine of the workers, in Rust.
.PHONY: engine-nanoseconds
engine-nanoseconds: setup ## measure how long it takes to decide about a record and to write the headers of its copy, as JSON
	@.venv/bin/devcluster cargo run --quiet --locked --release --example nanoseconds

.PHONY: engine-due-times
engine-due-times: setup ## simulate the whole way of a million records with due times within 30 days; RECORDS=10000 for fewer
	@.venv/bin/devcluster cargo run --quiet --locked --release --example due_times $(RECORDS)

FUZZ := $(CACHE)/cargo-fuzz
$(FUZZ)/bin/cargo-fuzz:
	@cargo install --quiet --locked cargo-fuzz --root $(FUZZ)

.PHONY: engine-fuzz
engine-fuzz: setup $(FUZZ)/bin/cargo-fuzz ## fuzz the reading of records and of metadata with AddressSanitizer, SECONDS=60 each; needs a nightly Rust
	@for target in records metadata; do mkdir -p $(FUZZ)/corpus/$$target $(FUZZ)/found/$$target; \
	(cd worker/engine && PATH="$(FUZZ)/bin:$$PATH" RUSTUP_TOOLCHAIN=nightly CARGO_TARGET_DIR=$(FUZZ)/target \
	cargo fuzz run --sanitizer address $$target $(FUZZ)/corpus/$$target -- -max_total_time=$(or $(SECONDS),60) -max_len=2048 \
	-artifact_prefix=$(FUZZ)/found/$$target/ -print_final_stats=1); done
