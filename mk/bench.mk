.PHONY: bench
bench: setup ## how fast and how late the relay is, beside what else there is; ARGS=--help tells the options
	@.venv/bin/delayed-topics-bench $(ARGS)
