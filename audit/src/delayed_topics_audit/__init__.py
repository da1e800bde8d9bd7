"""The audit on Spark: it reads a frozen window from Kafka and finds what became of every record, as a verdict, a page and a table.

What decides which offsets a window has belongs to the operator, and how a worker decides belongs to its engine.
"""
