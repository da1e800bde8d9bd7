# The relay's engine, which is Rust.
.PHONY: engine-nanoseconds
engine-nanoseconds: setup ## what deciding about a record and writing its copy's headers takes, as JSON
	@.venv/bin/devcluster cargo run --quiet --locked --release --example nanoseconds
