# Fault tests, with brokers and workers of their own: make faults ROW=W1 TRIALS=20 SEED=7.
# `.venv/bin/delayed-topics-faults --help` lists the rows.
TRIALS ?= 5
SEED ?= 7

.PHONY: faults
faults: setup $(if $(AUDIT),$(SPARK_JARS)) ## run one row of fault tests (ROW=W1 TRIALS=20 SEED=7 GUARANTEE=ExactlyOnce AUDIT=1): an independent judge checks it, and with AUDIT=1 an audit too
	@.venv/bin/delayed-topics-faults --row "$(or $(ROW),$(error say which row: make faults ROW=W1))" --trials $(TRIALS) --seed $(SEED) $(if $(GUARANTEE),--guarantee $(GUARANTEE)) $(if $(AUDIT),--audit $(SPARK_JARS)) --results faults/results
