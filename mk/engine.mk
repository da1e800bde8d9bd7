# The relay's engine, which is Rust, beside what Python decides: one truth while both exist.
.PHONY: engine-differential engine-nanoseconds
engine-differential: setup ## random records through both implementations: RECORDS=10000000 SEED=7 (15 min); ends at a difference
	@.venv/bin/python -m delayed_topics_worker_testing.differential_cases --records $(or $(RECORDS),1000000) --seed $(SEED)

engine-nanoseconds: setup ## what deciding about a record and writing its copy's headers takes, as JSON
	@.venv/bin/devcluster cargo run --quiet --locked --release --example nanoseconds
