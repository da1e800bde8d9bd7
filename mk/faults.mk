# Faults on purpose, on brokers and workers of their own: make faults ROW=W1 TRIALS=20 SEED=7; `.venv/bin/delayed-topics-faults --help` lists the rows.
TRIALS ?= 5
SEED ?= 7

.PHONY: faults
faults: setup $(if $(AUDIT),$(SPARK_JARS)) ## one row of faults (ROW=W1 TRIALS=20 SEED=7 GUARANTEE=ExactlyOnce AUDIT=1), judged by an independent reader, and audited
	@.venv/bin/delayed-topics-faults --row "$(or $(ROW),$(error say which row: make faults ROW=W1))" --trials $(TRIALS) --seed $(SEED) $(if $(GUARANTEE),--guarantee $(GUARANTEE)) $(if $(AUDIT),--audit $(SPARK_JARS)) --results faults/results
